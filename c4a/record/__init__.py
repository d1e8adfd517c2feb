"""The record: append-only entries, heads folded from them, and the verbs that write both.

`types` says what goes in and out. A verb is one function over an executor (`dialects.Executor`); `sqlite`, `postgres`
and `http` are the three places a record can live.
"""
