"""`claw client NAME`: what goes into the configuration of a client, so that its calls are captured. One page each in docs/clients/.

Values stand in the recipes in the quotes of their file: JSON, TOML and YAML read the same escapes.
"""

import json
import shlex
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from string import Template
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import typer

from claw_r1.claw.answers import Answer
from claw_r1.claw.errors import CannotRun
from claw_r1.claw.notice import notice
from claw_r1.claw.options import Commands, Prefix
from claw_r1.claw.panels import AUTHORS

ANSWER_S = 3.0
"""How long the gateway may take to name its models."""


class ClientRecipe(NamedTuple):
    """The instructions for one client. `$root` is the gateway with its scope, `$base` the same with `/v1`, `$key` and
    `$model` themselves."""

    protocol: str
    """The protocol that it then speaks, in the form of `CallCaptured.protocol`."""
    command: str
    """The command that starts it once, for a first try."""
    files: tuple[tuple[str, str], ...] = ()
    """(path, text) of each file of its configuration."""
    environment: tuple[tuple[str, str], ...] = ()
    """(name, value) of each variable."""
    aliases: tuple[str, ...] = ()
    """The aliases of a key for it (`claw keys create --alias`)."""
    sampling: tuple[str, ...] = ()
    """Sampling parameters in which its key wins, since it fixes them itself."""
    strip_strict: bool = False
    """The client marks tools `strict`."""


OPENCLAW = """\
{
  "tools": {"allow": ["exec", "read", "write", "edit"]},
  "agents": {"defaults": {"model": {"primary": "claw/$model"}}},
  "models": {"mode": "replace", "providers": {"claw": {
    "baseUrl": "$base", "apiKey": "$key", "api": "openai-completions",
    "models": [{
      "id": "$model", "name": "$model", "reasoning": false, "input": ["text"],
      "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
      "contextWindow": 131072, "maxTokens": 8192, "compat": {"supportsPromptCacheKey": true}
    }]
  }}}
}
"""
CODEX = """\
model = "$model"
model_provider = "claw"

[model_providers.claw]
name = "claw"
base_url = "$base"
env_key = "CLAW_KEY"
wire_api = "responses"
"""
AIDER = """\
- name: "openai/$model"
  edit_format: diff
  use_temperature: 1.0
"""
OPENCODE = """\
{
  "model": "claw/$model",
  "provider": {"claw": {
    "npm": "@ai-sdk/openai-compatible", "name": "claw",
    "options": {"baseURL": "$base", "apiKey": "$key"},
    "models": {"$model": {"tool_call": true, "limit": {"context": 131072, "output": 8192}}}
  }}
}
"""
SDK_OPENAI = "import os, openai; print(openai.OpenAI().chat.completions.create(model=os.environ['OPENAI_MODEL'], messages=[{'role': 'user', 'content': 'Hello'}]))"
SDK_ANTHROPIC = "import os, anthropic; print(anthropic.Anthropic().messages.create(model=os.environ['ANTHROPIC_MODEL'], max_tokens=64, messages=[{'role': 'user', 'content': 'Hello'}]))"
RECIPES = {
    "openclaw": ClientRecipe(
        "chat",
        'openclaw agent --local --session-key agent:main:first -m "Say hello."',
        files=(("~/.openclaw/openclaw.json", OPENCLAW),),
    ),
    "claude-code": ClientRecipe(
        "messages",
        'claude -p "Say hello."',
        environment=(
            ("ANTHROPIC_BASE_URL", "$root"),
            ("ANTHROPIC_AUTH_TOKEN", "$key"),
            ("ANTHROPIC_MODEL", "$model"),
            ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "$model"),
            ("CLAUDE_CODE_ATTRIBUTION_HEADER", "0"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ),
        aliases=("claude-*=$model",),
    ),
    "codex": ClientRecipe(
        "responses",
        'codex exec --skip-git-repo-check "Say hello."',
        files=(("~/.codex/config.toml", CODEX),),
        environment=(("CLAW_KEY", "$key"),),
    ),
    "aider": ClientRecipe(
        "chat",
        'aider --model "openai/$$OPENAI_MODEL" --edit-format diff --message "Say hello."',
        files=((".aider.model.settings.yml", AIDER),),
        environment=(("OPENAI_API_BASE", "$base"), ("OPENAI_API_KEY", "$key"), ("OPENAI_MODEL", "$model")),
        sampling=("temperature=1",),
    ),
    "opencode": ClientRecipe(
        "chat",
        'opencode run "Say hello."',
        files=(("~/.config/opencode/opencode.json", OPENCODE),),
        environment=(("OPENCODE_DISABLE_MODELS_FETCH", "1"),),
    ),
    "openai": ClientRecipe(
        "chat",
        f'python -c "{SDK_OPENAI}"',
        environment=(("OPENAI_BASE_URL", "$base"), ("OPENAI_API_KEY", "$key"), ("OPENAI_MODEL", "$model")),
        strip_strict=True,
    ),
    "anthropic": ClientRecipe(
        "messages",
        f'python -c "{SDK_ANTHROPIC}"',
        environment=(("ANTHROPIC_BASE_URL", "$root"), ("ANTHROPIC_API_KEY", "$key"), ("ANTHROPIC_MODEL", "$model")),
    ),
}
clients = Commands()


@clients.command(rich_help_panel=AUTHORS)
def client(
    name: Annotated[str, typer.Argument(help=f"{', '.join(RECIPES)} (an SDK by the name of its package).")],
    url: Annotated[str, typer.Option(help="The gateway.")] = "http://127.0.0.1:8000",
    key: Annotated[str | None, typer.Option(envvar="CLAW_KEY", help="Its API key.")] = None,
    new_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Make a key of this name for it, whose sessions are NAME/….")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Name of the model; not set: what the gateway serves first.")
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="Scope or trajectory in the path; not set: that of the key.")
    ] = None,
    prefix: Prefix = "claw",
) -> Iterator[Answer]:
    """Print what goes into a client's configuration, so that its calls are captured here."""
    if name not in RECIPES:
        raise CannotRun(f"no recipe for {name}: there are {', '.join(RECIPES)}")
    if not url.startswith(("http://", "https://")):
        raise CannotRun("--url is http://host:port")
    root = url.rstrip("/").removesuffix("/v1") + (f"/{quote(scope, safe='')}" if scope else "")
    values = {"root": root, "base": f"{root}/v1", "key": key or "KEY", "model": model or _served(root, key) or "MODEL"}
    if new_key is not None:
        if values["model"] == "MODEL":
            raise CannotRun("--new-key needs --model NAME: the gateway named none")
        # A scope joins the calls of a client that names no session; one in the path is a trajectory of its own choice.
        own_scope = new_key if scope is None else None
        values["key"] = key = _made_key(new_key, own_scope, written(RECIPES[name], values), prefix)
    recipe = written(RECIPES[name], values)
    yield Answer(as_json_object(name, recipe), as_text(name, recipe))
    if key is None:
        notice(f"KEY: `{shlex.join(_create(recipe))}` prints one; a gateway without keys takes any word")
    if values["model"] == "MODEL":
        notice(f"MODEL: {root} named none (one with keys answers to --key); `claw up` starts a gateway with one")


def written(recipe: ClientRecipe, values: dict[str, str]) -> ClientRecipe:
    """The recipe with these values in it."""
    quoted = {name: json.dumps(value)[1:-1] for name, value in values.items()}
    return recipe._replace(
        command=Template(recipe.command).substitute(values),
        files=tuple((path, Template(text).substitute(quoted)) for path, text in recipe.files),
        environment=tuple((name, Template(text).substitute(values)) for name, text in recipe.environment),
        aliases=tuple(Template(alias).substitute(values) for alias in recipe.aliases),
    )


def as_text(name: str, recipe: ClientRecipe) -> str:
    """Files, variables and a first try, to be copied."""
    parts = [f"# {path}\n{text}" for path, text in recipe.files]
    if recipe.environment:
        lines = [f"export {variable}={shlex.quote(value)}" for variable, value in recipe.environment]
        parts.append("# the environment\n" + "\n".join(lines) + "\n")
    parts.append(f"# a first try; more: docs/clients/{name}.md\n{recipe.command}")
    return "\n".join(parts)


def as_json_object(name: str, recipe: ClientRecipe) -> dict[str, Any]:  # JSON
    """The same for programs."""
    return {
        "client": name,
        "protocol": recipe.protocol,
        "files": [{"path": path, "text": text} for path, text in recipe.files],
        "environment": dict(recipe.environment),
        "command": recipe.command,
        "page": f"docs/clients/{name}.md",
    }


def _create(recipe: ClientRecipe) -> list[str]:
    """The command that makes a key for it."""
    aliases = [word for alias in recipe.aliases for word in ("--alias", alias)]
    sampling = [word for parameter in recipe.sampling for word in ("--sampling", parameter)]
    return [
        "claw",
        "keys",
        "create",
        "NAME",
        "--scope",
        "NAME",
        *aliases,
        *sampling,
        *(["--strip-strict"] if recipe.strip_strict else []),
    ]


def _made_key(name: str, scope: str | None, recipe: ClientRecipe, prefix: str) -> str:
    """A new key of an agent, as `claw keys create` makes it."""
    from claw_r1.claw.broker_log import log_for_reading
    from claw_r1.claw.keys.records import PRODUCER, create
    from claw_r1.claw.keys.terms import aliases_of, checked_word, sampling_of
    from claw_r1.schemas.envelopes import envelope
    from claw_r1.schemas.events import KeyRecorded

    key = KeyRecorded(
        envelope=envelope(PRODUCER),
        digest="",
        name=checked_word(name, "--new-key"),
        role="agent",
        scope=scope,
        aliases=aliases_of(recipe.aliases),
        sampling=sampling_of(recipe.sampling),
        strip_strict=recipe.strip_strict,
    )
    with log_for_reading(prefix) as settings:
        secret, _ = create(settings, key)
    return secret


def _served(root: str, key: str | None) -> str | None:
    """The first model that the gateway names; None where it does not answer so."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        request = urllib.request.Request(f"{root}/v1/models", headers=headers)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as reply:
            return str(json.load(reply)["data"][0]["id"])
    except (OSError, HTTPException, ValueError, LookupError, TypeError):
        return None
