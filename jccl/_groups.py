"""Options that belong together: frozen dataclasses, and functions that take them.

A group has a default for every field, prints what differs from the defaults, and
checks its fields when it is made. The help of a function that takes groups describes
their fields, and a caller who passes one as a keyword is told which group holds it.
Pure; any thread.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_PLAIN = (bool, int, float, str)


class Group:
    """Base of the groups: `@dataclass(frozen=True, repr=False, eq=False)`."""

    def given(self) -> Mapping[str, Any]:
        """The fields that differ from their defaults. Found once: every call of a verb
        asks the groups it takes by default."""
        found = self.__dict__.get("_given")
        if found is None:
            own = self.__dict__
            kind: Any = type(self)
            defaults = _defaults(kind).items()
            found = {k: own[k] for k, default in defaults if not _same(own[k], default)}
            object.__setattr__(self, "_given", found)
        return found

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self.given().items())
        return f"{type(self).__name__}({said})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group) or type(self) is not type(other):
            return False
        mine, theirs = self.given(), other.given()
        return mine.keys() == theirs.keys() and all(
            _equal(value, theirs[name]) for name, value in mine.items()
        )

    def __hash__(self) -> int:
        return hash((type(self), *self.given()))

    def only(self, who: str, *names: str) -> None:
        """TypeError if a field differs that `who` makes no use of."""
        for name in self.given():
            if name not in names:
                raise TypeError(
                    f"jccl: {who} takes no {name}= of jccl.{type(self).__name__}, only "
                    f"{', '.join(names)}; leave it out"
                )


@functools.cache
def _defaults(group: type[Group]) -> dict[str, Any]:
    return {one.name: one.default for one in dataclasses.fields(group)}  # type: ignore[arg-type]


def _same(value: Any, default: Any) -> bool:
    if value is default:
        return True
    if isinstance(value, Group):
        return type(value) is type(default) and not value.given()
    if isinstance(value, tuple) and isinstance(default, tuple):
        return not value and not default
    # An array that equals the default is given all the same.
    return (
        type(value) is type(default) and isinstance(value, _PLAIN) and value == default
    )


def _equal(one: Any, other: Any) -> bool:
    """An array is equal to itself alone, so nothing is read of a device."""
    if one is other:
        return True
    if hasattr(one, "shape") or hasattr(other, "shape"):
        return False
    try:
        return bool(one == other)
    except Exception:  # of a container that holds arrays
        return False


def check_kind(kind: Any, **values: Any) -> None:
    """TypeError for a field of another type; None passes."""
    for name, value in values.items():
        if value is None or isinstance(value, kind):
            continue
        kinds = kind if isinstance(kind, tuple) else (kind,)
        words = " or ".join(one.__name__ for one in kinds)
        raise TypeError(f"jccl: {name}={value!r} must be {words} or None")


def sorted_into(
    name: str, group: type[Group], options: dict[str, Any]
) -> dict[str, Any]:
    """The options, with those that are fields of the group in one under its name."""
    fields = {one.name for one in dataclasses.fields(group)}  # type: ignore[arg-type]
    found = {key: value for key, value in options.items() if key in fields}
    if not found:
        return options
    rest = {key: value for key, value in options.items() if key not in fields}
    return rest | {name: group(**found)}


def groups_of(call: Callable[..., Any]) -> dict[str, Group]:
    """The parameters of a function that take groups, with their defaults."""
    parameters = inspect.signature(call).parameters.values()
    return {
        one.name: one.default for one in parameters if isinstance(one.default, Group)
    }


def _fields(group: type, shown: str) -> Iterator[tuple[str, str]]:
    """(field, how it is written) of a group that a call gets as `shown`."""
    for field in dataclasses.fields(group):
        if isinstance(field.default, Group):
            inner = type(field.default)
            form = f"jccl.{inner.__name__}({{}})"
            yield from _fields(inner, shown.format(f"{field.name}={form}"))
        else:
            yield field.name, shown.format(f"{field.name}=…")


_ENTRY = r"^ {{8}}{}: .*(?:\n {{12}}.*)*"  # of a parameter, in a docstring


def _entries(doc: str, name: str) -> list[str]:
    return re.findall(_ENTRY.format(name), doc, re.M)


def _fields_help(doc: str, groups: dict[str, type[Group]]) -> str:
    """What the groups say of the fields that a docstring lists for its parameters, so
    that the help of a function is enough to use it."""
    parts = []
    for name, group in groups.items():
        own = "".join(_entries(doc, name))
        fields = dataclasses.fields(group)  # type: ignore[arg-type]
        listed = [one for one in fields if re.search(rf"\b{one.name}\b", own)]
        if f"`jccl.{group.__name__}`" not in own or not listed:
            continue
        about = group.__doc__ or ""
        rows = [row for one in listed for row in _entries(about, one.name)]
        head = f"    Fields of `{name}`, a `jccl.{group.__name__}`:"
        parts.append("\n".join([head, *rows]) + "\n\n")
        inner = {
            one.name: type(one.default)
            for one in listed
            if isinstance(one.default, Group)
        }
        parts.append(_fields_help(about, inner))
    return "".join(parts)


def grouped(**others: type[Group]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that takes groups: its help describes their fields, and it
    says of a keyword that is one of them where that lives.

    `others`: groups that its parameters take besides something else.
    """

    def decorated(call: Callable[P, R]) -> Callable[P, R]:
        takes = inspect.signature(call).parameters
        classes = {name: type(group) for name, group in groups_of(call).items()}
        lives: dict[str, str] = {}
        for name, group in {**classes, **others}.items():
            for field, written in _fields(group, f"{name}=jccl.{group.__name__}({{}})"):
                lives.setdefault(field, written)

        if call.__doc__:
            every = {**classes, **others}
            call.__doc__ += "\n" + _fields_help(call.__doc__, every).rstrip(" \n")

        @functools.wraps(call)
        def checked(*args: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in takes and name in lives:
                    raise TypeError(
                        f"{call.__name__}() takes {name}= in a group: write "
                        f"{lives[name]}"
                    )
            return call(*args, **options)

        return checked

    return decorated
