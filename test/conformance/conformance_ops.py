"""The operators of PyTorch's database of operators that the table has rows for, by group."""

from __future__ import annotations

from typing import Any

#: Names of the database, ``name`` or ``name/variant``, by what they are for.
GROUPS: dict[str, tuple[str, ...]] = {
    "products": (
        "matmul", "mm", "bmm", "mv", "dot", "addmm", "addmv", "addbmm", "baddbmm", "addr", "outer", "inner", "einsum",
        "tensordot", "linalg.vecdot", "linalg.multi_dot", "nn.functional.linear", "nn.functional.bilinear",
        "nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward",
    ),
    "arithmetic": (
        "add", "sub", "rsub", "mul", "div/no_rounding_mode", "div/trunc_rounding", "div/floor_rounding", "true_divide",
        "floor_divide", "remainder", "fmod", "neg", "reciprocal", "addcmul", "addcdiv", "lerp", "pow", "float_power",
        "square", "abs", "sign", "sgn", "ceil", "floor", "round", "trunc", "frac", "maximum", "minimum", "fmax",
        "fmin", "max/binary", "min/binary", "clamp", "clamp_min", "clamp_max", "hypot", "copysign", "nan_to_num",
    ),
    "comparisons and masks": (
        "eq", "ne", "lt", "le", "gt", "ge", "isclose", "isnan", "isinf", "isfinite", "logical_and", "logical_or",
        "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "where",
        "masked_fill", "tril", "triu", "all", "any",
    ),
    "functions": (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
        "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "logit", "erf", "erfc",
        "erfinv", "logaddexp", "xlogy", "special.entr", "sinc", "lgamma",
    ),
    "activations": (
        "nn.functional.relu", "nn.functional.relu6", "nn.functional.leaky_relu", "nn.functional.prelu",
        "nn.functional.gelu", "nn.functional.silu", "nn.functional.elu", "nn.functional.selu", "nn.functional.celu",
        "nn.functional.softplus", "nn.functional.softsign", "nn.functional.mish", "nn.functional.hardtanh",
        "nn.functional.hardswish", "nn.functional.hardsigmoid", "nn.functional.hardshrink",
        "nn.functional.softshrink", "nn.functional.tanhshrink", "nn.functional.threshold",
        "nn.functional.logsigmoid", "nn.functional.glu",
    ),
    "reductions": (
        "sum", "mean", "prod", "var", "var/unbiased", "std", "std/unbiased", "var_mean", "std_mean", "amax", "amin",
        "aminmax", "max/reduction_no_dim", "max/reduction_with_dim", "min/reduction_no_dim",
        "min/reduction_with_dim", "argmax", "argmin", "logsumexp", "softmax", "softmax/with_dtype", "log_softmax",
        "log_softmax/with_dtype", "nn.functional.softmin", "norm", "linalg.norm", "linalg.vector_norm", "nansum",
        "nanmean", "count_nonzero", "cumsum", "cumprod", "logcumsumexp", "trace", "dist",
    ),
    "norms": (
        "nn.functional.layer_norm", "nn.functional.rms_norm", "nn.functional.group_norm",
        "nn.functional.batch_norm", "nn.functional.instance_norm", "nn.functional.local_response_norm",
        "nn.functional.normalize", "nn.functional.cosine_similarity", "nn.functional.pairwise_distance",
    ),
    "losses": (
        "nn.functional.cross_entropy", "nn.functional.nll_loss", "nn.functional.binary_cross_entropy",
        "nn.functional.binary_cross_entropy_with_logits", "nn.functional.mse_loss", "nn.functional.l1_loss",
        "nn.functional.smooth_l1_loss", "nn.functional.huber_loss", "nn.functional.kl_div",
        "nn.functional.gaussian_nll_loss", "nn.functional.poisson_nll_loss", "nn.functional.hinge_embedding_loss",
        "nn.functional.margin_ranking_loss", "nn.functional.cosine_embedding_loss",
        "nn.functional.triplet_margin_loss", "nn.functional.soft_margin_loss", "nn.functional.multi_margin_loss",
        "nn.functional.multilabel_margin_loss", "nn.functional.multilabel_soft_margin_loss",
    ),
    "indices": (
        "nn.functional.embedding", "__getitem__", "index_select", "index_add", "index_put", "index_copy",
        "index_fill", "gather", "scatter", "scatter_add", "scatter_reduce/sum", "take", "take_along_dim",
        "nn.functional.one_hot", "masked_scatter", "nn.functional.embedding_bag", "searchsorted", "bucketize",
    ),
    "shapes": (
        "cat", "stack", "hstack", "vstack", "dstack", "column_stack", "split", "split/list_args",
        "split_with_sizes", "chunk", "tensor_split", "unbind", "narrow", "select", "slice", "select_scatter",
        "slice_scatter", "diagonal_scatter", "nn.functional.pad/constant", "nn.functional.pad/reflect",
        "nn.functional.pad/replicate", "nn.functional.pad/circular", "permute", "transpose", "movedim", "t", "mT",
        "reshape", "view", "view_as", "flatten", "unflatten", "ravel", "squeeze", "squeeze/multiple", "unsqueeze",
        "expand", "expand_as", "broadcast_to", "broadcast_tensors", "repeat", "repeat_interleave", "tile", "flip",
        "fliplr", "flipud", "roll", "rot90", "diag", "diagonal", "diag_embed", "unfold", "as_strided", "kron",
        "meshgrid/list_of_tensors", "atleast_2d", "sum_to_size",
    ),
    "making": (
        "arange", "linspace", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros",
        "new_full", "eye", "tril_indices", "clone", "contiguous", "to", "float", "half", "bfloat16", "long", "bool",
    ),
    "windows": (
        "nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d", "nn.functional.conv_transpose1d",
        "nn.functional.conv_transpose2d", "nn.functional.max_pool1d", "nn.functional.max_pool2d",
        "nn.functional.max_pool3d", "nn.functional.avg_pool1d", "nn.functional.avg_pool2d",
        "nn.functional.avg_pool3d", "nn.functional.adaptive_avg_pool1d", "nn.functional.adaptive_avg_pool2d",
        "nn.functional.adaptive_max_pool1d", "nn.functional.adaptive_max_pool2d", "nn.functional.unfold",
        "nn.functional.interpolate/nearest", "nn.functional.interpolate/bilinear", "nn.functional.pixel_shuffle",
    ),
    "outside": (
        "sort", "argsort", "topk", "median", "kthvalue", "unique", "nonzero", "masked_select",
        "nn.functional.dropout", "rand_like", "bernoulli", "multinomial", "item", "fft.fft", "linalg.svd",
        "resize_", "nn.functional.ctc_loss",
    ),
}  # fmt: skip


def operators() -> dict[str, Any]:
    """The entry of the database of each name, in the order of the groups.

    Raises:
        KeyError: the database has no entry of a name.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    known = {f"{op.name}/{op.variant_test_name}".rstrip("/"): op for op in op_db}
    return {name: known[name] for names in GROUPS.values() for name in names}
