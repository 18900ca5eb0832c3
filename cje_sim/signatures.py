"""Functions made of functions that still show, in `help` and to `inspect`, the keywords they take."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")


def inherits(*sources: Callable[..., Any]) -> Callable[[Function], Function]:
    """Give the keywords of `sources` to a function that passes ``**keywords`` on: in signature and docstring, too."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        parameters = {p.name: p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
        for source in sources:
            for parameter in inspect.signature(source).parameters.values():
                parameters.setdefault(parameter.name, parameter)
        wider = signature.replace(parameters=list(parameters.values()))

        def passing(*positional: Any, **keywords: Any) -> Any:
            refuse_unknown(function.__module__, function.__name__, wider, keywords)
            return function(*positional, **keywords)

        summary, described = split_doc(function)
        described = "\n".join(filter(None, (described, *(split_doc(source)[1] for source in sources))))
        bound: Function = bind(
            passing, function.__name__, function.__module__, wider, join_doc(summary, described)
        )
        return bound

    return decorate


def call(function: Callable[..., T], keywords: Mapping[str, Any]) -> T:
    """Call with those of `keywords` that the function has."""
    asked = inspect.signature(function).parameters
    return function(**{name: value for name, value in keywords.items() if name in asked})


def composed(
    name: str, outer: Callable[..., Any], inner: Callable[..., Any], *, first: str = ""
) -> Callable[..., Any]:
    """``outer(inner(**keywords))`` under a name, with the keywords of `inner`.

    Parameters
    ----------
    name : str
        What the module of `inner` calls it.
    outer, inner : functions
    first : str
        Name of a positional argument that goes to `outer` alone: ``outer(first, inner(**keywords))``.
    """

    def function(*positional: Any, **keywords: Any) -> Any:
        return outer(*positional, inner(**keywords))

    signature = inspect.signature(inner).replace(return_annotation=inspect.signature(outer).return_annotation)
    if first:
        positional = inspect.Parameter(first, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = signature.replace(parameters=[positional, *signature.parameters.values()])
    doc = join_doc(split_doc(outer)[0], split_doc(inner)[1])
    bound: Callable[..., Any] = bind(function, name, inner.__module__, signature, doc)
    return bound


def split_doc(function: Callable[..., Any]) -> tuple[str, str]:
    """Docstring before and inside the section "Parameters", which comes last."""
    summary, _, described = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")
    return summary.strip(), described.strip()


def join_doc(summary: str, described: str) -> str:
    """Put together what `split_doc` parts."""
    return f"{summary}\n\nParameters\n----------\n{described}" if described else summary


def refuse_unknown(module: str, name: str, signature: inspect.Signature, keywords: Mapping[str, Any]) -> None:
    """Raise the `TypeError` of an unknown keyword, with the keywords there are."""
    unknown = set(keywords) - set(signature.parameters)
    if unknown:
        there = ", ".join(signature.parameters)
        raise TypeError(f"{module}.{name} has no parameter {min(unknown)!r}; there are: {there}")


def bind(function: Callable[..., Any], name: str, module: str, signature: inspect.Signature, doc: str) -> Any:
    """Let `function` show and pickle as ``module.name``."""
    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = module, doc
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function
