"""What the generated builders of the ops take from MLIR's Python package."""

from mlir.dialects._ods_common import (
    _cext,
    equally_sized_accessor,
    get_default_loc_context,
    get_op_result_or_op_results,
    get_op_result_or_value,
    get_op_results_or_values,
    segmented_accessor,
)

__all__ = [
    "_cext",
    "equally_sized_accessor",
    "get_default_loc_context",
    "get_op_result_or_op_results",
    "get_op_result_or_value",
    "get_op_results_or_values",
    "segmented_accessor",
]
