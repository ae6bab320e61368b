"""Turns what PyTorch raises while it traces into errors about the user's program."""

from __future__ import annotations

import os
from types import TracebackType

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorDeviceMismatchError,
    UnsupportedOperatorException,
)

from trainkernel.capture.locations import location_of, user_frame_of_traceback
from trainkernel.errors import CaptureError, SourceLocation, describe

# Where PyTorch calls what torch.compile made, and its own operators, which compile what they are given.
_COMPILED = os.path.join("torch", "_dynamo", "eval_frame.py")
_OPERATORS = os.path.join("torch", "_higher_order_ops", "")
_MASK_HINT = "use torch.where with the mask, or multiply by it, instead of selecting by it"
_PACKED_HINT = (
    "run over the padded sequences, and let torch.where or gather choose by their lengths; to run backwards over each, "
    "gather it in its own reverse order before and after"
)


def explained(error: BaseException) -> CaptureError:
    """The error that the user gets for an exception that escaped the trace; raise it ``from`` that exception."""
    position = user_frame_of_traceback(error.__traceback__)
    location = location_of(position)
    if isinstance(error, SystemExit):
        return CaptureError("the step ended the program", expected="a step that returns", location=location)
    known = _known(error, location)
    if known is not None:
        return known
    if _in_compiled_function(error.__traceback__):
        return compiled_function_error(location)
    what = describe(error)
    if location is None:
        return CaptureError(f"PyTorch could not trace the step: {what}", expected="a static functional step")
    return CaptureError(
        f"the step raised {what}",
        expected="a step that runs on tensors without values",
        hint="call it once with real tensors; if it raises there too, mend that first",
        location=location,
    )


def control_flow_error(name: str, location: SourceLocation | None) -> CaptureError:
    """The error for an operator that takes functions."""
    return CaptureError(
        f"control flow operator {name} is not supported",
        expected="straight-line code",
        hint="compute both branches and select with torch.where, or unroll the loop in Python",
        location=location,
    )


def hidden_state_error(name: str, location: SourceLocation | None) -> CaptureError:
    """The error for an operation that draws random numbers from PyTorch's generator."""
    return CaptureError(
        f"{name} draws random numbers from hidden state",
        expected="a step that depends on its arguments only",
        hint="use trainkernel.random, whose state is a tensor of the step, e.g. random.dropout(x, 0.1, state), or "
        "draw the numbers or the mask outside and pass them as an argument",
        location=location,
    )


def compiled_function_error(location: SourceLocation | None) -> CaptureError:
    """The error for a function that ``torch.compile`` made."""
    is_users = location is not None and not location.file.startswith("<")
    return CaptureError(
        "the step is a function of torch.compile, or calls one",
        expected="plain functions",
        hint="leave torch.compile out: pass the function or the module that was given to it",
        location=location if is_users else None,
    )


def _known(error: BaseException, location: SourceLocation | None) -> CaptureError | None:
    text = describe(error)
    if isinstance(error, DataDependentOutputException) or ".numpy() is not supported" in text:
        return CaptureError(
            "the step reads the value of a tensor (.item(), .tolist(), .numpy(), bool(), int(), float() or an if)",
            expected="a step whose course does not depend on values",
            hint="keep it a tensor; choose with torch.where instead of if",
            location=location,
        )
    if isinstance(error, DynamicOutputShapeException):
        return CaptureError(
            f"{_op(error)} has a result whose shape depends on values",
            expected="static shapes",
            hint=_PACKED_HINT if "padded_sequence" in _op(error) else _MASK_HINT,
            location=location,
        )
    if isinstance(error, UnsupportedOperatorException):
        return CaptureError(f"operator {_op(error)} cannot be traced", location=location)
    if isinstance(error, FakeTensorDeviceMismatchError):
        return CaptureError(
            "the step names a device, while it is captured on the CPU",
            expected="tensors on the device of the arguments",
            hint="create tensors with device=x.device",
            location=location,
        )
    return _known_by_text(error, location)


def metadata_error() -> CaptureError:
    """The error for a step that changes more of an argument than its elements."""
    return CaptureError(
        "the step changes the shape or the storage of an argument in place", expected="a functional step"
    )


def _known_by_text(error: BaseException, location: SourceLocation | None) -> CaptureError | None:
    text = describe(error)
    if type(error).__name__ == "UncapturedHigherOrderOpError":
        return control_flow_error("torch.cond, while_loop or the like", location)
    if "does not require grad and does not have a grad_fn" in text:
        return CaptureError(
            "the step calls backward() on what no gradient is asked of",
            expected="gradients of a function of the state",
            hint="use torch.func.grad_and_value(loss)(state), or state.detach().requires_grad_() before the loss",
            location=location,
        )
    if "step must be greater than zero" in text:
        return CaptureError(
            "the step takes a slice of a tensor with a negative step",
            expected="steps forwards, which PyTorch's slices have",
            hint="turn it with x.flip(dim)",
            location=location,
        )
    if "entirely functional graph" in text or "mutating a non-functional tensor" in text:
        return CaptureError(
            "the step changes in place a tensor that is no argument of it",
            expected="a functional step",
            hint="pass it to the step as an argument and return its new value",
            location=location,
        )
    return None


def _in_compiled_function(traceback: TracebackType | None) -> bool:
    """Whether an exception came from a function that the step had compiled, not from a control flow operator."""
    caller = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        # The other functions there keep the compiler away from what PyTorch itself calls.
        if code.co_filename.endswith(_COMPILED) and code.co_name == "compile_wrapper" and _OPERATORS not in caller:
            return True
        caller, traceback = code.co_filename, traceback.tb_next
    return False


def _op(error: BaseException) -> str:
    return str(getattr(error, "func", error)).rsplit(".", 1)[0]
