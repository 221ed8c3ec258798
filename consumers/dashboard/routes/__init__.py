"""`/api/v1`: a module per view, called like its `static/views/NAME.js`; `parts/` answers what several views ask.

Each has a router `routes`, and the page asks nothing else.

A route is a plain function (FastAPI gives it a thread), takes `Source` and one of `Looking`, `Watching`, `Judging`, `Operating`,
and answers with `SafeJson`. Ids are query parameters (`g`, `t`, `c`): they may hold any character.
"""
