"""From a Python call to a `Call`: bind arguments as Python will, canonicalise them, compute every digest.

A keyword that the tool has is the tool's; C4A's own options are always reachable as `c4a_…`.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from c4a import canonical, keys
from c4a.errors import C4AError, InvalidArguments
from c4a.record.types import Call

KEY_OPTION: Final = "c4a_key"
_INSTANCE_KEY: Final = "__c4a_key__"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Place:
    """Where a call is made: its organization, run, digest key and the effect it is inside of."""

    organization: str
    run: str
    digest_key: bytes | None = None
    parent: str | None = None


class Tool:
    """A decorated function: its name, its parameters, and what of a call goes into which digest."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        gated: bool = False,
        exclude: tuple[str, ...] = (),
        key: Callable[..., Any] | None = None,
        has_undo: bool = False,
        takes_class: bool = False,
        is_static: bool = False,
    ) -> None:
        """Read the function's signature once; `takes_class` and `is_static` are what a class body declared.

        Raises:
            InvalidArguments: no name, or `exclude=` names a parameter the function doesn't have.
        """
        self.function = function
        self.name = keys.identifier(name if name is not None else _name_of(function), "tool")
        self.gated = gated
        self.exclude = frozenset(exclude)
        self.key = key
        self.has_undo = has_undo
        self.signature = inspect.signature(function)
        self.parameters = dict(self.signature.parameters)
        self._instance_parameter = None if is_static else _instance_parameter(function, self.parameters, takes_class)
        self._read_parameters()
        self._warned = False
        unknown = sorted(self.exclude - set(self.parameters))
        if unknown:
            raise InvalidArguments(
                f"exclude= expected parameters of {self.name}, got {unknown}; it has {list(self.parameters)}", parameter="exclude"
            )

    def _read_parameters(self) -> None:
        every = self.parameters.values()
        self._positional = tuple(p.name for p in every if p.kind in _POSITIONAL)
        self._by_keyword = frozenset(p.name for p in every if p.kind in _BY_KEYWORD)
        self.var_positional = next((p.name for p in every if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
        self.var_keyword = next((p.name for p in every if p.kind is inspect.Parameter.VAR_KEYWORD), None)
        self.defaults = {p.name: p.default for p in every if p.default is not inspect.Parameter.empty}
        self._own_key_option = KEY_OPTION in self.parameters

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """Annotations by parameter name, and `return`; one that can't be resolved is left out."""
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except Exception:  # noqa: BLE001 - annotations are the user's text: one that names an unknown class spoils only itself
            return {name: hint for name, hint in _raw_hints(self.function).items() if not isinstance(hint, str)}

    def has(self, name: str) -> bool:
        """True if a keyword of this name is the tool's own."""
        return name in self.parameters or self.var_keyword is not None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Parameter name to value for every parameter, exactly as Python will call the function, defaults applied.

        Raises:
            InvalidArguments: Python would refuse the call, in Python's words.
        """
        positional = self._positional
        values = dict(zip(positional, args))  # noqa: B905 - lengths are compared below
        if len(args) > len(positional) and self.var_positional is None:
            self._refuse(args, kwargs)
        if self.var_positional is not None:
            values[self.var_positional] = list(args[len(positional) :])
        extra: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in self._by_keyword and name not in values:
                values[name] = value
            elif self.var_keyword is not None and name not in self._by_keyword:
                extra[name] = value
            else:
                self._refuse(args, kwargs)
        if self.var_keyword is not None:
            values[self.var_keyword] = extra
        if len(values) < len(self.parameters):
            self._fill(values, args, kwargs)
        return values

    def _fill(self, values: dict[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for name in self.parameters:
            if name not in values:
                if name not in self.defaults:
                    self._refuse(args, kwargs)
                values[name] = self.defaults[name]

    def _refuse(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> typing.NoReturn:
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArguments(f"{self.name}: {error}", parameter="args") from None
        raise InvalidArguments(f"{self.name}: these arguments don't fit its signature {self.signature}", parameter="args")

    def take_instance(self, values: dict[str, Any]) -> None:
        """Replace `self` (or `cls`) by what tells it apart: its `__c4a_key__`, else nothing.

        Raises:
            InvalidArguments: the tool needs approval and the instance has state that no key names.
        """
        if self._instance_parameter is not None:
            self._name_instance(values, values.pop(self._instance_parameter))
        elif inspect.ismethod(self.function):
            self._name_instance(values, self.function.__self__)

    def name_receiver(self, values: dict[str, Any], receiver: object) -> None:
        """As `take_instance`, for an instance that comes from a bound method instead of an argument."""
        self._name_instance(values, receiver)

    @property
    def instance_parameter(self) -> str | None:
        """The name of the parameter that holds the instance, if this is a method."""
        return self._instance_parameter

    def _name_instance(self, values: dict[str, Any], instance: Any) -> None:
        defined_here = _is_defining_class(self.function, instance if isinstance(instance, type) else type(instance))
        if isinstance(instance, type):
            if not defined_here:  # a subclass is another receiver than the class the tool was written in
                values["cls"] = f"{instance.__module__}.{instance.__qualname__}"
            return
        if hasattr(instance, _INSTANCE_KEY):
            values["self"] = _instance_key(self.name, instance)
            return
        if defined_here and not _has_state(instance):
            return
        kind = f"{type(instance).__module__}.{type(instance).__qualname__}"
        if self.gated:
            raise InvalidArguments(
                f"{self.name} needs approval, but its {kind} has state that the yes would not show: give {kind} a __c4a_key__ "
                "(an attribute or method that returns text naming the account or server it stands for)",
                parameter="self",
            )
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.name}: `self` is not part of the action, so two {kind} objects with the same arguments are one action. "
                f"Give {kind} a __c4a_key__ (text naming the account it stands for), or pass c4a_key=.",
                UserWarning,
                stacklevel=5,
            )

    def explicit_key(self, args: tuple[Any, ...], kwargs: dict[str, Any], values: dict[str, Any]) -> str | None:
        """The text of `c4a_key=` (taken out of `kwargs` by the caller beforehand) or of the tool's `key=`.

        Raises:
            InvalidArguments: it is blank, None, a bool, or neither text nor int.
        """
        if self.key is None:
            return None
        return keys.explicit_key_text(call_alike(self.key, self, args, kwargs, values))


_NO_KEY: Final = object()


def call_of(tool: Tool, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, dict[str, Any]]:
    """The `Call` of one Python call and its bound values; takes `c4a_key` out of `kwargs` unless the tool has such a parameter.

    Raises:
        InvalidArguments: arguments don't fit, have no stable text, or the explicit key is blank.
    """
    given_key = _NO_KEY if tool._own_key_option else kwargs.pop(KEY_OPTION, _NO_KEY)
    values = tool.bind(args, kwargs)
    shown = dict(values)
    tool.take_instance(shown)
    explicit = tool.explicit_key(args, kwargs, values) if given_key is _NO_KEY else keys.explicit_key_text(given_key)
    return call_from_values(tool, place, shown, explicit), values


def call_from_values(tool: Tool, place: Place, values: dict[str, Any], explicit_key: str | None) -> Call:
    """The `Call` of bound values whose instance was already replaced; every digest is computed here.

    Raises:
        InvalidArguments: a value has no stable text.
    """
    arguments, codec, reduced = _texts(tool, place, values, explicit_key)
    digest = keys.call_digest(tool.name, arguments)
    if explicit_key is None:
        key = keys.effect_key(place.organization, place.run, tool.name, arguments=reduced)
    else:
        key = keys.effect_key(place.organization, place.run, tool.name, explicit_key=explicit_key)
    return Call(
        run=place.run,
        tool=tool.name,
        arguments=arguments,
        arguments_codec=codec,
        call_digest=digest,
        args_digest=digest if reduced is arguments else keys.call_digest(tool.name, reduced),
        key=key,
        explicit_key=explicit_key,
        gated=tool.gated,
        parent=place.parent,
        has_undo=tool.has_undo,
        exclude=tuple(sorted(tool.exclude)),
    )


def call_alike(
    function: Callable[..., Any], tool: Tool, args: tuple[Any, ...], kwargs: Mapping[str, Any], values: Mapping[str, Any]
) -> Any:
    """Call `reconcile=` or `key=` with the tool's typed arguments: by name, each it takes; by position if its names differ."""
    arguments = _arguments_by_name(function, tool, values)
    if arguments is None:
        return function(*args, **kwargs)
    return function(*arguments[0], **arguments[1])


def _arguments_by_name(function: Callable[..., Any], tool: Tool, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]] | None:
    named = {name: value for name, value in values.items() if name not in (tool.var_positional, tool.var_keyword)}
    extra = values.get(tool.var_keyword, {}) if tool.var_keyword is not None else {}
    by_position: list[Any] = []
    by_name: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            if by_name:
                return None
            by_position.extend(values.get(tool.var_positional, ()) if tool.var_positional is not None else ())
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            if tool.instance_parameter is not None:
                named.pop(tool.instance_parameter, None)
            by_name.update(named, **{name: value for name, value in extra.items() if name not in named})
        elif parameter.name in named:
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY or by_name:
                by_name[parameter.name] = named.pop(parameter.name)
            else:
                by_position.append(named.pop(parameter.name))
        elif parameter.name in extra:
            by_name[parameter.name] = extra[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            return None
    return by_position, by_name


def _texts(tool: Tool, place: Place, values: dict[str, Any], explicit_key: str | None) -> tuple[str, str, str]:
    """Canonical text, codec text, and canonical text without what `exclude=` names (the same object if nothing is)."""
    try:
        arguments, codec = canonical.encode_arguments(values, digest_key=place.digest_key)
    except InvalidArguments as error:
        if tool.gated or (explicit_key is None and not tool.exclude):
            raise _no_stable_text(tool, error) from None
        values = {name: _recordable(tool, place, name, value, explicit_key) for name, value in values.items()}
        arguments, codec = canonical.encode_arguments(values, digest_key=place.digest_key)
    if not tool.exclude:
        return arguments, codec, arguments
    kept = {name: value for name, value in values.items() if name not in tool.exclude}
    return arguments, codec, canonical.encode_arguments(kept, digest_key=place.digest_key)[0]


def _recordable(tool: Tool, place: Place, name: str, value: Any, explicit_key: str | None) -> Any:
    try:
        canonical.encode_arguments({name: value}, digest_key=place.digest_key)
    except InvalidArguments as error:
        if explicit_key is None and name not in tool.exclude:
            raise _no_stable_text(tool, error) from None
        # Its type is all that is stable about it; the explicit key (or exclude=) says which action this is.
        return f"<not recorded: {type(value).__module__}.{type(value).__qualname__}>"
    return value


def _no_stable_text(tool: Tool, error: InvalidArguments) -> InvalidArguments:
    advice = (
        "an action that needs approval must show every argument"
        if tool.gated
        else "or pass c4a_key= (such as an order id) to name this action yourself"
    )
    return InvalidArguments(f"{tool.name}: {error.message}; {advice}", **error.fields)


def _name_of(function: Callable[..., Any]) -> str:
    qualified = getattr(function, "__qualname__", None)
    if not isinstance(qualified, str):
        raise InvalidArguments(
            f"expected a function or name= for {type(function).__qualname__}, which has no name of its own", parameter="name"
        )
    if qualified.endswith("<lambda>"):
        raise InvalidArguments("expected name= for a lambda: all lambdas of a module share one name", parameter="name")
    return f"{function.__module__}.{qualified}"


def _instance_parameter(function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], takes_class: bool) -> str | None:
    """`self` or `cls` of a function written in a class body; elsewhere these are parameters like any other."""
    first = next(iter(parameters), None)
    scope = getattr(function, "__qualname__", "").rpartition(".")[0]
    if first is None or not isinstance(function, types.FunctionType) or not scope or scope.endswith("<locals>"):
        return None
    return first if takes_class or first in ("self", "cls") else None


def _is_defining_class(function: Callable[..., Any], cls: type) -> bool:
    scope = getattr(function, "__qualname__", "").rpartition(".")[0]
    return (cls.__module__, cls.__qualname__) == (getattr(function, "__module__", None), scope)


def _has_state(instance: object) -> bool:
    if getattr(instance, "__dict__", None):
        return True
    slots = (name for cls in type(instance).__mro__ for name in _slots(cls))
    return any(hasattr(instance, name) for name in slots)


def _slots(cls: type) -> tuple[str, ...]:
    declared = cls.__dict__.get("__slots__", ())
    names = (declared,) if isinstance(declared, str) else tuple(declared)
    return tuple(
        f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    )


def _instance_key(tool: str, instance: Any) -> Any:
    value = getattr(instance, _INSTANCE_KEY)
    try:
        return keys.explicit_key_text(value() if callable(value) else value)
    except C4AError as error:
        raise InvalidArguments(f"{tool}: {type(instance).__qualname__}.{_INSTANCE_KEY}: {error.message}", parameter="self") from None


def _raw_hints(function: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    raw = dict(getattr(function, "__annotations__", {}))
    for name, hint in raw.items():
        holder = type("_One", (), {"__annotations__": {name: hint}, "__module__": getattr(function, "__module__", "")})
        try:
            found.update(typing.get_type_hints(holder, getattr(function, "__globals__", {}), include_extras=True))
        except Exception:  # noqa: BLE001, S112 - as above: an annotation that can't be resolved is as good as none
            continue
    return found
