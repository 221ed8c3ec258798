"""Right code whose answers, arguments or errors are of other kinds than a list or a number, and tests that it passes.

Each is (code, test): names of the code are its own, so that many go into one module.
"""

PROGRAMS = {
    "a Counter": (
        "from collections import Counter\ndef letters(text): return Counter(text)",
        "assert letters('aab') == {'a': 2, 'b': 1} and letters('aab').most_common(1) == [('a', 2)] and letters('')['x'] == 0",
    ),
    "a defaultdict": (
        "from collections import defaultdict\ndef groups(pairs):\n    d = defaultdict(list)\n    for k, v in pairs: d[k].append(v)\n    return d",
        "assert groups([('a', 1), ('b', 2), ('a', 3)]) == {'a': [1, 3], 'b': [2]}\nassert groups([])['new'] == []",
    ),
    "a defaultdict of the code's own default": (
        "from collections import defaultdict\ndef counts_from_seven(): return defaultdict(lambda: 7)",
        "assert counts_from_seven()['x'] == 7",
    ),
    "an OrderedDict": (
        "from collections import OrderedDict\ndef ordered(xs):\n    d = OrderedDict((x, 1) for x in xs)\n    d.move_to_end(xs[0])\n    return d",
        "from collections import OrderedDict\nassert ordered('abc') == OrderedDict([('b', 1), ('c', 1), ('a', 1)])\nassert list(ordered('abc')) == ['b', 'c', 'a']",
    ),
    "a deque": (
        "from collections import deque\ndef last_two(xs): return deque(xs, maxlen=2)",
        "from collections import deque\nassert last_two([1, 2, 3]) == deque([2, 3]) and last_two([]).maxlen == 2",
    ),
    "a namedtuple": (
        "from collections import namedtuple\nPoint = namedtuple('Point', 'x y')\ndef moved(p, by): return Point(p.x + by, p.y + by)",
        "p = moved(Point(1, 2), 3)\nassert p == (4, 5) and p.x == 4 and p._asdict() == {'x': 4, 'y': 5} and isinstance(p, tuple)\nx, y = p\nassert (x, y) == (4, 5)\nassert p == moved(Point(0, 1), 4) and str(p) == 'Point(x=4, y=5)'",
    ),
    "a NamedTuple with a method and a field named count": (
        "from typing import NamedTuple\nclass Word(NamedTuple):\n    text: str\n    count: int\n    def shout(self): return self.text.upper()",
        "w = Word('a', 3)\nassert w.count == 3 and w.shout() == 'A' and w == ('a', 3) and w[1] == 3 and w == Word('a', 3) and w != Word('b', 3)",
    ),
    "an IntEnum": (
        "from enum import IntEnum\nclass Level(IntEnum):\n    LOW = 1\n    HIGH = 3\ndef level(n): return Level.HIGH if n > 9 else Level.LOW",
        "assert level(10) == 3 and level(1) == Level.LOW and level(10) > level(1) and level(1) + 1 == 2\nassert level(10).name == 'HIGH' and Level(3) is Level.HIGH and level(1) in (1, 2) and {level(1): 'x'}[1] == 'x'",
    ),
    "an Enum": (
        "from enum import Enum\nclass Colour(Enum):\n    RED = 'r'\n    BLUE = 'b'\ndef colour(text): return Colour(text)",
        "assert colour('r') is Colour.RED and colour('b').value == 'b' and colour('b') != Colour.RED\nassert [c.name for c in Colour] == ['RED', 'BLUE'] and Colour['RED'] == colour('r') and isinstance(colour('r'), Colour)",
    ),
    "a Flag": (
        "from enum import IntFlag\nclass Right(IntFlag):\n    READ = 1\n    WRITE = 2",
        "both = Right.READ | Right.WRITE\nassert both == 3 and Right.READ in both and both & Right.WRITE == Right.WRITE and both & Right.READ",
    ),
    "a str Enum": (
        "from enum import Enum\nclass Suit(str, Enum):\n    HEARTS = 'hearts'\ndef suit(): return Suit.HEARTS",
        "assert suit() == 'hearts' and suit().upper() == 'HEARTS' and suit().name == 'HEARTS' and suit() in {'hearts'}",
    ),
    "a range": (
        "def evens(n): return range(0, n, 2)",
        "assert evens(5) == range(0, 5, 2) and list(evens(5)) == [0, 2, 4]",
    ),
    "views of a dict": (
        "def keys_of(d): return d.keys()\ndef values_of(d): return d.values()\ndef items_of(d): return d.items()",
        "d = {'a': 1, 'b': 2}\nassert keys_of(d) == {'a', 'b'} and sorted(values_of(d)) == [1, 2] and items_of(d) == d.items() and list(keys_of(d)) == ['a', 'b']",
    ),
    "a Decimal": (
        "from decimal import Decimal\ndef price(text, n): return Decimal(text) * n",
        "from decimal import Decimal\nassert price('1.10', 3) == Decimal('3.30') and str(price('1.10', 3)) == '3.30' and price('0.5', 2) == 1\nassert abs(price('1.1', 1) - Decimal('1.1')) < Decimal('0.01') and price(2, Decimal('1.5')) == 3",
    ),
    "a Fraction": (
        "from fractions import Fraction\ndef half(n): return Fraction(n, 2)",
        "from fractions import Fraction\nassert half(3) == Fraction(3, 2) and half(4) == 2 and half(Fraction(1, 3)) == Fraction(1, 6) and half(3) > 1",
    ),
    "dates": (
        "from datetime import date, datetime, time, timedelta, timezone\ndef next_day(d): return d + timedelta(days=1)\ndef at_noon(d): return datetime.combine(d, time(12), timezone.utc)\ndef between(a, b): return b - a",
        "from datetime import date, datetime, timedelta, timezone\nassert next_day(date(2024, 2, 28)) == date(2024, 2, 29) and next_day(datetime(2024, 1, 1, 5)) == datetime(2024, 1, 2, 5)\nassert at_noon(date(2024, 1, 1)) == datetime(2024, 1, 1, 12, tzinfo=timezone.utc)\nassert between(date(2024, 1, 1), date(2024, 1, 3)) == timedelta(days=2) and between(date(2024, 1, 1), date(2024, 1, 3)).days == 2",
    ),
    "a complex number": ("def root_of_minus_one(): return 1j", "assert root_of_minus_one() ** 2 == -1"),
    "bytes": (
        "def joined(a, b): return a + b\ndef first_byte(data): return memoryview(data)[0]\ndef grown(data):\n    data.extend(b'!')\n    return data",
        "data = bytearray(b'a')\nassert joined(b'a', b'\\xff') == b'a\\xff' and grown(data) == bytearray(b'a!') and data == b'a!' and isinstance(grown(data), bytearray) and first_byte(b'b') == 98",
    ),
    "a frozenset": (
        "def letters_of(text): return frozenset(text)",
        "assert letters_of('aba') == frozenset('ab') and letters_of('ab') == {'a', 'b'} and {letters_of('a'): 1}[frozenset('a')] == 1",
    ),
    "ints of many digits": (
        "def power_of_two(n): return 2 ** n\ndef successor(n): return n + 1\ndef negated(n): return -n",
        "assert power_of_two(20000) == 1 << 20000 and successor(10 ** 5000) == 10 ** 5000 + 1 and negated(2 ** 64) == -2 ** 64 and successor(2 ** 64 - 1) == 2 ** 64",
    ),
    "floats without a number": (
        "def infinite(): return [float('inf'), float('-inf'), -0.0]",
        "import math\nassert infinite() == [math.inf, -math.inf, 0.0] and math.copysign(1, infinite()[2]) == -1",
    ),
    "lists beyond all limits": (
        "def first_numbers(n): return list(range(n))\ndef length_of(xs): return len(xs)",
        "xs = first_numbers(1_500_000)\nassert len(xs) == 1_500_000 and xs[-1] == 1_499_999 and length_of(xs) == 1_500_000",
    ),
    "nests of 600": (
        "def nested(n):\n    x = []\n    for _ in range(n): x = [x]\n    return x\ndef depth_of(x):\n    n = 0\n    while x: x, n = x[0], n + 1\n    return n",
        "x, n = nested(600), 0\nwhile x: x, n = x[0], n + 1\nassert n == 600 and depth_of(nested(600)) == 600",
    ),
    "a list that holds itself": (
        "def ring():\n    x = [1]\n    x.append(x)\n    return x",
        "x = ring()\nassert x[1] is x and x[0] == 1",
    ),
    "rows that are one list": (
        "def grid(): return [[0] * 2] * 2",
        "g = grid()\ng[0][0] = 1\nassert g == [[1, 0], [1, 0]]",
    ),
    "a generator": (
        "import types\ndef naturals():\n    n = 0\n    while True:\n        yield n\n        n += 1\ndef squares_of(xs): return (x * x for x in xs)",
        "import itertools\nassert list(itertools.islice(naturals(), 3)) == [0, 1, 2] and list(squares_of([1, 2])) == [1, 4]\ng = squares_of([3])\nassert next(g) == 9 and next(g, None) is None and iter(g) is g",
    ),
    "maps and zips": (
        "def doubled(xs): return map(lambda x: 2 * x, xs)\ndef paired(a, b): return zip(a, b)",
        "assert list(doubled([1, 2])) == [2, 4] and list(paired([1], 'a')) == [(1, 'a')] and sum(doubled([1])) == 2",
    ),
    "a range as argument": (
        "def total(xs): return sum(xs)",
        "assert total(range(4)) == 6 and total(x for x in (1, 2)) == 3 and total(iter([5])) == 5 and total(map(int, '12')) == 3 and total({1: 2}.values()) == 2",
    ),
    "an endless iterator as argument": (
        "def first_of(n, xs):\n    return [x for _, x in zip(range(n), xs)]",
        "import itertools\nassert first_of(3, itertools.count(5)) == [5, 6, 7]",
    ),
    "StringIO as argument": (
        "def shouted(source, target):\n    for line in source: target.write(line.upper())",
        "import io\ntarget = io.StringIO()\nshouted(io.StringIO('a\\nb\\n'), target)\nassert target.getvalue() == 'A\\nB\\n'",
    ),
    "StringIO as answer": (
        "import io\ndef written(text):\n    buffer = io.StringIO()\n    print(text, file=buffer)\n    return buffer",
        "assert written('a').getvalue() == 'a\\n'",
    ),
    "a deque that is changed": (
        "def rotate(d): d.rotate(1)\ndef count_up(counter, key): counter[key] += 1\ndef sort_named(*, values): values.sort()",
        "from collections import Counter, deque\nd, c, v = deque([1, 2, 3]), Counter('a'), [2, 1]\nrotate(d), count_up(c, 'a'), sort_named(values=v)\nassert d == deque([3, 1, 2]) and c == {'a': 2} and v == [1, 2]",
    ),
    "the argument itself": (
        "def sort_and_return(xs):\n    xs.sort()\n    return xs\ndef copied(xs): return xs[:]",
        "xs = [2, 1]\nassert sort_and_return(xs) is xs and xs == [1, 2] and copied(xs) is not xs",
    ),
    "a function of Python's as argument": (
        "def applied(f, *xs): return f(*xs)",
        "import operator, math\nassert applied(len, 'abc') == 3 and applied(operator.add, 1, 2) == 3 and applied(str.upper, 'a') == 'A' and applied(int, '3') == 3 and applied(math.sqrt, 4) == 2",
    ),
    "a type as answer": (
        "def kind_of(x): return type(x)",
        "assert kind_of(1) is int and kind_of('') == str and kind_of([]) is list",
    ),
    "nodes of the tests' own class": (
        "def reversed_list(node):\n    last = None\n    while node: node.next, last, node = last, node, node.next\n    return last",
        "class Node:\n    def __init__(self, value, after=None): self.value, self.next = value, after\n    def values(self): return [self.value, *(self.next.values() if self.next else [])]\nnodes = Node(1, Node(2, Node(3)))\nassert reversed_list(nodes).values() == [3, 2, 1] and nodes.next is None",
    ),
    "a subclass of dict": (
        "class Inventory(dict):\n    def total(self): return sum(self.values())",
        "i = Inventory(a=1)\ni['b'] = 2\nassert i == {'a': 1, 'b': 2} and i.total() == 3 and len(i) == 2 and 'a' in i\ndel i['a']\nassert i == {'b': 2} and {'b': 2} == i",
    ),
    "a subclass of list": (
        "class Stack(list):\n    def push(self, x): self.append(x)",
        "s = Stack()\ns.push(1)\ns.push(2)\nassert s == [1, 2] and s[-1] == 2 and list(reversed(s)) == [2, 1] and s.pop() == 2 and s + [5] == [1, 5]",
    ),
    "text of objects": (
        "class Money:\n    def __init__(self, n): self.n = n\n    def __str__(self): return f'${self.n:.2f}'\n    def __repr__(self): return f'Money({self.n})'\n    def __format__(self, form): return str(self) + form",
        "m = Money(3)\nassert str(m) == '$3.00' and repr(m) == 'Money(3)' and f'{m:!}' == '$3.00!' and '%s' % m == '$3.00' and repr([m]) == '[Money(3)]'",
    ),
    "a vector's operators": (
        "class Vector:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __add__(self, o): return Vector(self.x + o.x, self.y + o.y)\n    def __sub__(self, o): return Vector(self.x - o.x, self.y - o.y)\n    def __mul__(self, k): return Vector(self.x * k, self.y * k) if isinstance(k, (int, float)) else self.x * k.x + self.y * k.y\n    __rmul__ = __mul__\n    def __truediv__(self, k): return Vector(self.x / k, self.y / k)\n    def __neg__(self): return Vector(-self.x, -self.y)\n    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5\n    def __eq__(self, o): return isinstance(o, Vector) and (self.x, self.y) == (o.x, o.y)\n    def __iadd__(self, o):\n        self.x += o.x\n        self.y += o.y\n        return self\n    def __iter__(self): return iter((self.x, self.y))\n    def __matmul__(self, o): return 5\n    def __bool__(self): return bool(self.x or self.y)",
        "a, b = Vector(3, 4), Vector(1, 2)\nassert a + b == Vector(4, 6) and a - b == Vector(2, 2) and (a * 2).x == 6 and 2 * a == Vector(6, 8) and a * b == 11\nassert (a / 2).y == 2.0 and a / 2 == Vector(1.5, 2) and abs(a) == 5 and -b == Vector(-1, -2) and a != b and list(a) == [3, 4] and a @ b == 5 and not Vector(0, 0)\na += b\nassert a.x == 4 and sum([b, b], Vector(0, 0)) == Vector(2, 4)",
    ),
    "objects in order": (
        "from functools import total_ordering\n@total_ordering\nclass Version:\n    def __init__(self, text): self.parts = tuple(map(int, text.split('.')))\n    def __eq__(self, o): return self.parts == o.parts\n    def __lt__(self, o): return self.parts < o.parts\n    def __hash__(self): return hash(self.parts)",
        "a, b = Version('1.2'), Version('1.10')\nassert a < b and b > a and a <= b and b >= a and not b < a and a <= Version('1.2') and a == Version('1.2')\nassert max(a, b) is b and [v.parts for v in sorted([b, a])] == [(1, 2), (1, 10)] and len({a, b, Version('1.2')}) == 2 and {a: 1}[Version('1.2')] == 1",
    ),
    "objects with half an order": (
        "class Job:\n    def __init__(self, n): self.n = n\n    def __lt__(self, o): return self.n < o.n",
        "import heapq\nheap = [Job(3), Job(1), Job(2)]\nheapq.heapify(heap)\nassert [heapq.heappop(heap).n for _ in range(3)] == [1, 2, 3]",
    ),
    "dataclasses": (
        "from dataclasses import dataclass, field\n@dataclass(order=True, frozen=True)\nclass Card:\n    rank: int\n    tags: list = field(default_factory=list, compare=False)",
        "assert Card(3) == Card(3) and Card(2) < Card(3) and Card(3) != Card(4) and vars(Card(1)) == {'rank': 1, 'tags': []} and repr(Card(1)) == 'Card(rank=1, tags=[])'\ntry: Card(1).rank = 2\nexcept AttributeError: pass\nelse: raise ValueError",
    ),
    "numbers of an object": (
        "class Reading:\n    def __init__(self, v): self.v = v\n    def __float__(self): return float(self.v)\n    def __int__(self): return int(self.v)\n    def __index__(self): return int(self.v)\n    def __round__(self, n=0): return round(self.v, n)\n    def __complex__(self): return complex(self.v)\n    def __bytes__(self): return b'r'",
        "import math\nr = Reading(2.56)\nassert float(r) == 2.56 and int(r) == 2 and [5, 6, 7][r] == 7 and round(r, 1) == 2.6 and math.isclose(r, 2.56) and complex(r) == 2.56 and bytes(r) == b'r' and math.floor(r) == 2",
    ),
    "a context manager": (
        "from contextlib import contextmanager\nclass Door:\n    open = False\n    def __enter__(self):\n        self.open = True\n        return self\n    def __exit__(self, *_): self.open = False\nlog = []\n@contextmanager\ndef logged(name):\n    log.append('in ' + name)\n    try: yield name\n    finally: log.append('out')",
        "with Door() as door: assert door.open\nassert not door.open\nwith logged('x') as name: assert name == 'x'\nassert logged.__name__ == 'logged'\ntry:\n    with logged('y'): raise KeyError('y')\nexcept KeyError: pass\nimport solution\nassert solution.log == ['in x', 'out', 'in y', 'out']",
    ),
    "deleting": (
        "class Shelf:\n    def __init__(self): self.books = {'a': 1}\n    def __getitem__(self, k): return self.books[k]\n    def __delitem__(self, k): del self.books[k]\n    def __contains__(self, k): return k in self.books\n    def __reversed__(self): return iter([2, 1])",
        "s = Shelf()\ndel s['a']\nassert 'a' not in s and list(reversed(s)) == [2, 1]\ndel s.books\nassert not hasattr(s, 'books')",
    ),
    "slices": (
        "class Row:\n    def __getitem__(self, k): return list(range(10))[k]",
        "assert Row()[2:8:3] == [2, 5] and Row()[-1] == 9",
    ),
    "awaiting": (
        "import asyncio\nasync def slowly(x):\n    await asyncio.sleep(0)\n    return 2 * x\nasync def ticks():\n    for n in range(3): yield n\nclass Session:\n    async def __aenter__(self): return self\n    async def __aexit__(self, *_): self.closed = True",
        "import asyncio\nassert asyncio.run(slowly(2)) == 4\nasync def both():\n    async with Session() as s: pass\n    return s.closed, [n async for n in ticks()], await asyncio.gather(slowly(1), slowly(2))\nassert asyncio.run(both()) == (True, [0, 1, 2], [2, 4])",
    ),
    "an error that is built on another": (
        "import json\ndef parsed(text): return json.loads(text)",
        "import json\nfor kind in (ValueError, json.JSONDecodeError, Exception):\n    try: parsed('[1,')\n    except kind as e: assert e.pos == 3 and 'Expecting value' in str(e)\n    else: raise AssertionError",
    ),
    "an error of decimal": (
        "from decimal import Decimal\ndef decimal_of(text): return Decimal(text)\ndef inverse(x): return 1 / Decimal(x)",
        "import decimal\nfor kind, f, x in ((ArithmeticError, decimal_of, 'x'), (decimal.InvalidOperation, decimal_of, 'x'), (ZeroDivisionError, inverse, 0)):\n    try: f(x)\n    except kind: pass\n    else: raise AssertionError",
    ),
    "the key of a KeyError": (
        "def looked_up(d, k): return d[k]",
        "try: looked_up({}, ('a', 1))\nexcept KeyError as e: assert e.args == (('a', 1),) and isinstance(e, LookupError)\nelse: raise AssertionError",
    ),
    "the number of an OSError": (
        "def opened(path): return open(path)",
        "import errno\ntry: opened('/nowhere')\nexcept FileNotFoundError as e: assert e.errno == errno.ENOENT and e.filename == '/nowhere' and isinstance(e, OSError) and 'nowhere' in str(e)\nelse: raise AssertionError",
    ),
    "a UnicodeDecodeError": (
        "def decoded(data): return data.decode()",
        "try: decoded(b'a\\xff')\nexcept UnicodeDecodeError as e: assert e.start == 1 and e.object == b'a\\xff' and isinstance(e, ValueError)\nelse: raise AssertionError",
    ),
    "the code's own errors": (
        "class ShopError(Exception): pass\nclass SoldOut(ShopError, LookupError):\n    def __init__(self, item, left=0):\n        super().__init__(f'{item} is sold out')\n        self.item = item\n    @property\n    def words(self): return [self.item]\ndef buy(item):\n    try: {}[item]\n    except KeyError as e: raise SoldOut(item) from e",
        "for kind in (SoldOut, ShopError, LookupError):\n    try: buy('tea')\n    except kind as e: assert str(e) == 'tea is sold out' and e.item == 'tea' and e.words == ['tea'] and type(e).__name__ == 'SoldOut' and isinstance(e.__cause__, KeyError)\n    else: raise AssertionError\nassert issubclass(SoldOut, ShopError) and SoldOut('x').item == 'x'",
    ),
    "errors as values": (
        "def tried(f, x):\n    try: return f(x)\n    except Exception as e: return e\ndef raised(e): raise e",
        "e = tried(int, 'x')\nassert isinstance(e, ValueError) and 'invalid literal' in str(e)\nfor mine in (e, KeyError('k')):\n    try: raised(mine)\n    except (ValueError, KeyError) as again: assert type(again) is type(mine) and again.args == mine.args\n    else: raise AssertionError",
    ),
    "an exit": (
        "import sys\ndef leave(n): sys.exit(n)",
        "try: leave(3)\nexcept SystemExit as e: assert e.code == 3\nelse: raise AssertionError",
    ),
    "numpy's arrays": (
        "import numpy as np\ndef scaled(a, k): return a * k\ndef mean(a): return a.mean()\ndef zero_first(a): a[0] = 0",
        "import numpy as np\na = scaled(np.array([[1.0, 2.0]]), 2)\nassert a.shape == (1, 2) and a.tolist() == [[2.0, 4.0]] and mean(np.arange(3)) == 1.0 and np.allclose(a, [[2, 4]])\nb = np.array([1, 2])\nzero_first(b)\nassert b.tolist() == [0, 2] and b.dtype == int",
    ),
    "threads": (
        "import threading\nclass Count:\n    def __init__(self): self.n, self.lock = 0, threading.Lock()\n    def up(self):\n        with self.lock: self.n += 1",
        "import threading\nc = Count()\nts = [threading.Thread(target=lambda: [c.up() for _ in range(20)]) for _ in range(4)]\n[t.start() for t in ts], [t.join() for t in ts]\nassert c.n == 80",
    ),
    "copies of objects": (
        "class Tree:\n    def __init__(self, kids=()): self.kids = list(kids)\n    def add(self, kid): self.kids.append(kid)",
        "import copy\nt = Tree()\nu = copy.deepcopy(t)\nu.add(1)\nassert t.kids == [] and u.kids == [1] and copy.copy(t) is not t",
    ),
    "the same object again": (
        "class Single:\n    one = None\n    def __new__(cls):\n        cls.one = cls.one or super().__new__(cls)\n        return cls.one\nclass Chain:\n    def add(self): return self",
        "c = Chain()\nassert Single() is Single() and c.add() is c and c.add().add() == c and Chain() is not c and type(c).__name__ == 'Chain'",
    ),
    "classes and their instances": (
        "class Shape: pass\nclass Square(Shape):\n    sides = 4\n    @classmethod\n    def unit(cls): return cls()\n    @staticmethod\n    def help(): return 'h'\ndef of_tuples(): return [Square(), Shape()]",
        "assert isinstance(Square.unit(), Shape) and not isinstance(Shape(), Square) and not isinstance(3, Shape) and issubclass(Square, Shape) and Square.sides == 4 and Square.help() == 'h'\nassert [isinstance(x, Square) for x in of_tuples()] == [True, False] and Square.__name__ == 'Square'",
    ),
    "paths and ids": (
        "from pathlib import Path\nfrom uuid import UUID\ndef without_suffix(p): return Path(p).with_suffix('')\ndef as_uuid(n): return UUID(int=n)",
        "from pathlib import Path\nfrom uuid import UUID\nassert without_suffix('a/b.txt') == Path('a/b') and without_suffix(Path('x.y')) == Path('x') and as_uuid(1) == UUID(int=1)",
    ),
    "a namedtuple of the tests": (
        "def third(p): return p.c",
        "from collections import namedtuple\nassert third(namedtuple('T', 'a b c')(1, 2, 3)) == 3",
    ),
    "an object of the tests' own class with slots": (
        "def move(p):\n    p.x += 1\n    p.tags.append('moved')\n    return p",
        "from dataclasses import dataclass\n@dataclass(slots=True)\nclass Spot:\n    x: int\n    tags: list\nspot, tags = Spot(1, []), []\nspot.tags = tags\nassert move(spot) is spot and spot.x == 2 and tags == ['moved'] and spot.tags is tags",
    ),
    "an Enum of the tests": (
        "def told(c): return c.name, c.value\ndef itself(c): return c\ndef looked_up_in(d, c): return d[c]\ndef first_of(kind): return list(kind)[0]\ndef next_number(n): return n + 1",
        "import enum\nclass Tone(enum.Enum):\n    LOW = (1, 2)\n    HIGH = 'h'\n    LOUD = 'h'\nclass Level(enum.IntEnum):\n    ONE = 1\nclass Word(str, enum.Enum):\n    YES = 'yes'\nclass Right(enum.Flag):\n    READ = 1\n    WRITE = 2\nassert told(Tone.LOW) == ('LOW', (1, 2)) and told(Tone.LOUD) == ('HIGH', 'h') and told(Level.ONE) == ('ONE', 1)\nfor one in (Tone.LOW, Level.ONE, Word.YES, Right.READ | Right.WRITE): assert itself(one) is one\nassert looked_up_in({Tone.LOW: 3}, Tone.LOW) == 3 and first_of(Tone) is Tone.LOW and next_number(Level.ONE) == 2",
    ),
    "inner lists that the test holds as well": (
        "def set_first(grid): grid[0][0] = 5\ndef turned(grid):\n    grid.reverse()\n    return grid[0]\ndef grown(pair): pair[0].append(1)\ndef swapped(d): d['a'], d['b'] = d['b'], d['a']\ndef wrapped(row): return [row, {'k': row}]\ndef nested(grid): grid.append([grid[0]])",
        "row = [0]\ngrid = [row]\nset_first(grid)\nassert row == [5]\na, b = [1], [2]\ngrid = [a, b]\nassert turned(grid) is b and grid == [[2], [1]] and grid[1] is a and a == [1]\ngrown((row, 1))\nassert row == [5, 1]\nd = {'a': a, 'b': b}\nswapped(d)\nassert d == {'a': [2], 'b': [1]} and d['a'] is b\nassert wrapped(row)[0] is row and wrapped(row)[1]['k'] is row\ngrid = [a]\nnested(grid)\nassert grid == [[1], [[1]]] and grid[1][0] is a",
    ),
    "lists that are changed while a set of objects is returned": (
        "class Tag:\n    def __init__(self, n): self.n = n\n    def __hash__(self): return hash(self.n)\n    def __eq__(self, o): return self.n == o.n\ndef tagged(a, b):\n    a.append(1)\n    b.append(2)\n    return a, {Tag(1), Tag(2)}",
        "a, b = [], []\nagain, tags = tagged(a, b)\nassert a == [1] and b == [2] and again is a and len(tags) == 2 and Tag(1) in tags",
    ),
}
"""By what is odd about them."""
