"""Where in the arguments a value stands, and the refusal that names the place."""

from __future__ import annotations

from typing import Any, NoReturn

from c4a.errors import InvalidArguments

MAX_DEPTH = 200

# (place of the holder, key or index inside it, the value there). Links of tuples cost nothing until an error needs the path.
Place = tuple[Any | None, object, object]


def refuse(place: Place, problem: str) -> NoReturn:
    """Raise InvalidArguments naming the place.

    Raises:
        InvalidArguments: always; field `parameter` is the path.
    """
    path = path_text(place)
    raise InvalidArguments(f"{path}: {problem}", parameter=path)


def refuse_depth(place: Place) -> NoReturn:
    """Refuse a value nested too deep, saying so when it is because the value contains itself."""
    seen: dict[int, Place] = {}
    link: Place | None = place
    while link is not None:
        if id(link[2]) in seen and not isinstance(link[2], (str, int, float, type(None))):
            refuse(link, f"the {type(link[2]).__qualname__} contains itself; pass a value without cycles")
        seen[id(link[2])] = link
        link = link[0]
    refuse(place, f"nested deeper than {MAX_DEPTH} levels; pass a flatter value")


def path_text(place: Place) -> str:
    """`args.items[3].name`; a key that is no identifier is shown in brackets."""
    parts: list[str] = []
    link: Place = place
    while link[0] is not None:
        parts.append(_segment(link[1]))
        link = link[0]
    parts.append(str(link[1]))
    if len(parts) > 24:
        parts[8:-8] = ["…"]
    return "".join(reversed(parts))


def _segment(key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return "." + key[:80]
    text = repr(key) if isinstance(key, (str, int, float, bytes, type(None))) else type(key).__qualname__
    return f"[{text if len(text) <= 80 else text[:80] + '…'}]"
