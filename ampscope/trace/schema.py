"""The one place that names the tables and columns of a trace, with unit and meaning of each.

Imports nothing but the standard library: the training process reads it before pyarrow is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA_VERSION = (1, 0)
"""(major, minor). A reader reads any minor of its own major and refuses a newer major."""

HIST_MIN = -127
"""Exponent of the lowest bin: bin e counts finite nonzero |x| in [2^e, 2^(e+1)); bin -127 holds every
|x| < 2^-126 (float32 subnormals and what float64 narrows to them)."""


@dataclass(frozen=True)
class Column:
    """One column. `type` is one of int16, int32, int64, float64, bool, string, dict (a dictionary-encoded
    string), list<int64>, list<float64>, list<string>. Every column may be null: null means not measured."""

    name: str
    type: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Table:
    """One table: a folder of Parquet parts below `<run>/<name>/rank=K/`."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)


def _c(name: str, type: str, unit: str, doc: str) -> Column:
    return Column(name, type, unit, doc)


KEY = (
    _c(
        "step",
        "int64",
        "",
        "optimizer step of the user's run, from 0; what leads to a step is filed under it",
    ),
    _c("segment", "int64", "", "segment of the run: ends when an outermost optimizer step or skip returns"),
    _c("micro", "int32", "", "micro-batch (backward call) within the segment, from 0"),
    _c("proc", "int32", "", "number of the training process within the run and rank"),
    _c("phase", "dict", "", "forward, recompute, backward, optimizer or other"),
    _c("opt", "dict", "", "optimizer that ended the segment: class name and ordinal, e.g. AdamW#0"),
    _c("opt_step", "int64", "", "how often that optimizer was asked to step before (skipped included)"),
)
"""Leads every table. `rank` is not stored in the files: it is the hive partition `rank=K` of their path."""

PLACE = (
    _c("file", "dict", "", "the user's source file: the innermost frame outside torch and ampscope"),
    _c("line", "int32", "", "line in that file"),
    _c("function", "dict", "", "function of that line"),
)

STATS = (
    _c("dtype", "dict", "", "dtype of the tensor that was read, e.g. float16"),
    _c("numel", "int64", "elements", "elements read"),
    _c("of_numel", "int64", "elements", "elements of the whole tensor"),
    _c("zeros", "int64", "elements", "exact zeros"),
    _c("nan", "int64", "elements", "NaN"),
    _c("posinf", "int64", "elements", "+inf"),
    _c("neginf", "int64", "elements", "-inf"),
    _c("ge_65520", "int64", "elements", "finite |x| >= 65520: what a cast to float16 turns into inf"),
    _c("amax", "float64", "", "largest finite |x|; null when no element is finite"),
    _c("amin_nonzero", "float64", "", "smallest nonzero finite |x|; null when there is none"),
    _c("sum", "float64", "", "sum of the finite elements"),
    _c("sumsq", "float64", "", "sum of squares of the finite elements"),
    _c("sumabs", "float64", "", "sum of |x| of the finite elements"),
    _c("hist_lo", "int16", "log2", "exponent e of hist[0]; bin e counts |x| in [2^e, 2^(e+1))"),
    _c("hist", "list<int64>", "elements", "one count per binade from hist_lo upwards, trimmed at both ends"),
)

BASIS = _c("basis", "dict", "", "observed, predicted (computed from an observed histogram) or estimated")

STEPS = Table(
    "steps",
    "One row per segment: a step, a skip, or work that was abandoned.",
    (
        *KEY,
        _c(
            "outcome",
            "dict",
            "",
            "stepped, skipped, abandoned (backward without a step) or cut_off (run ended)",
        ),
        _c("skipped", "bool", "", "the GradScaler found a non-finite gradient and left the weights alone"),
        _c("t_start", "float64", "s", "start, since the start of the run"),
        _c(
            "duration_s",
            "float64",
            "s",
            "wall time from the end of the previous segment to the end of this one",
        ),
        _c("data_s", "float64", "s", "host time before the first forward: data loading and other user code"),
        _c("forward_s", "float64", "s", "host time in forward: from the first root forward to backward"),
        _c("backward_s", "float64", "s", "host time inside backward"),
        _c("unscale_s", "float64", "s", "host time from backward to the optimizer: unscale and clipping"),
        _c("optimizer_s", "float64", "s", "host time inside the optimizer step"),
        _c("forward_device_s", "float64", "s", "the same by device events; null without a CUDA device"),
        _c("backward_device_s", "float64", "s", "the same by device events"),
        _c("optimizer_device_s", "float64", "s", "the same by device events"),
        _c(
            "loss",
            "float64",
            "",
            "mean over the segment's backward roots, the loss scale taken out; NaN and inf kept",
        ),
        _c("loss_dtype", "dict", "", "dtype of the loss before scaling"),
        _c("n_backward", "int32", "calls", "backward calls in the segment"),
        _c(
            "root_sum",
            "float64",
            "",
            "float32 sum of the last root module output; non-finite shows a bad forward",
        ),
        _c("lr", "float64", "", "learning rate of the first parameter group when the optimizer stepped"),
        _c(
            "scale",
            "float64",
            "",
            "loss scale in force during the segment; null without an enabled GradScaler",
        ),
        _c(
            "autocast_dtype",
            "dict",
            "",
            "autocast dtype at the last root forward; null when autocast was off",
        ),
        _c("autocast_device", "dict", "", "autocast device type at the last root forward"),
        _c(
            "level",
            "dict",
            "",
            "pulse, range, census, profile or watch: the most that was collected in the segment",
        ),
        _c("host_rss", "int64", "bytes", "resident memory of the process"),
        _c(
            "device_allocated",
            "int64",
            "bytes",
            "device memory allocated when the segment ended; null without CUDA",
        ),
        _c("own_s", "float64", "s", "ampscope's own host time within the segment"),
    ),
    ("step", "segment"),
)

TENSORS = Table(
    "tensors",
    "Range level: exponent histogram and counters of one tensor at one moment.",
    (
        *KEY,
        _c("name", "dict", "", "parameter name, or module name + :out (also :out1 ...) for activations"),
        _c("module", "dict", "", "module that owns it, as named_modules() names it"),
        _c(
            "role",
            "dict",
            "",
            "weight, grad, activation, activation_grad, update, exp_avg, exp_avg_sq, momentum or buffer",
        ),
        _c("stage", "dict", "", "pre_unscale, pre_clip or post_clip for gradients; null elsewhere"),
        _c("scaled", "bool", "", "the values carry the loss scale; null when unknown"),
        _c(
            "scale",
            "float64",
            "",
            "the loss scale they carry: divide by it to get true values; 1 when unscaled",
        ),
        BASIS,
        _c("order", "int32", "", "order of occurrence within the segment: forward or backward order"),
        *STATS,
    ),
    ("role", "name", "step", "segment"),
)

UPDATES = Table(
    "updates",
    "What one optimizer step did to one parameter, element by element on a fixed subset.",
    (
        *KEY,
        _c("name", "dict", "", "parameter name"),
        _c("module", "dict", "", "module that owns it"),
        _c("dtype", "dict", "", "dtype in which the parameter is stored"),
        _c("numel", "int64", "elements", "elements compared"),
        _c("of_numel", "int64", "elements", "elements of the whole parameter"),
        _c("grad_nonzero", "int64", "elements", "compared elements whose gradient was finite and not zero"),
        _c(
            "unchanged",
            "int64",
            "elements",
            "of those: stored bits equal before and after. In a float16/bfloat16 parameter these updates were absorbed (observed)",
        ),
        _c(
            "absorbed_fp16",
            "int64",
            "elements",
            "nonzero updates with round16(w+dw) == round16(w): what a float16 weight would lose (predicted; for float32 parameters)",
        ),
        _c("absorbed_bf16", "int64", "elements", "the same for bfloat16"),
        _c("moved", "int64", "elements", "compared elements with a nonzero update"),
        _c("below_2_11", "int64", "elements", "moved elements with |dw|/|w| < 2^-11"),
        _c("below_2_8", "int64", "elements", "moved elements with |dw|/|w| < 2^-8"),
        _c("update_norm", "float64", "", "Euclidean norm of dw over the compared elements"),
        _c("weight_norm", "float64", "", "Euclidean norm of w before the step over the compared elements"),
        _c("update_amax", "float64", "", "largest finite |dw|"),
        _c("nonfinite_after", "int64", "elements", "compared elements that are NaN or inf after the step"),
        _c("lr", "float64", "", "learning rate of the parameter's group"),
        _c("ratio_lo", "int16", "log2", "exponent of ratio_hist[0]"),
        _c(
            "ratio_hist",
            "list<int64>",
            "elements",
            "histogram of |dw|/|w| per binade, moved elements with w != 0",
        ),
    ),
    ("name", "step", "segment"),
)

OPS = Table(
    "ops",
    "Census and watch: one row per aten op call, in order.",
    (
        *KEY,
        _c("seq", "int64", "", "order of the call within the segment"),
        _c("op", "dict", "", "e.g. aten::mm; overload dropped"),
        _c("module", "dict", "", "innermost module of the call, or of the forward op whose backward this is"),
        _c("in_dtypes", "list<string>", "", "dtypes of the tensor inputs"),
        _c("out_dtypes", "list<string>", "", "dtypes of the tensor outputs"),
        _c("in_shapes", "list<string>", "", "shapes of the tensor inputs, e.g. 16x32"),
        _c("out_shapes", "list<string>", "", "shapes of the tensor outputs"),
        _c("device", "dict", "", "device type of the first output"),
        _c("in_bytes", "int64", "bytes", "bytes of the tensor inputs"),
        _c("out_bytes", "int64", "bytes", "bytes of the tensor outputs"),
        _c("flops", "float64", "", "floating-point operations of a matmul or convolution; null elsewhere"),
        _c(
            "host_s",
            "float64",
            "s",
            "host time of the call under the dispatch mode: an upper bound, for ranking only",
        ),
        _c("cast", "dict", "", "null, autocast (a cast that autocast inserted) or user"),
        _c("cast_source", "dict", "", "for a cast: name of the parameter that was cast, if it was one"),
        _c(
            "tensor_ids",
            "list<int64>",
            "",
            "identities of inputs then outputs within the segment, to follow data flow",
        ),
        _c(
            "scalars",
            "list<float64>",
            "",
            "Python-number arguments of the call in order (eps, clamp bounds, factors)",
        ),
        _c("in_nonfinite", "int64", "elements", "NaN and inf elements in the inputs"),
        _c("out_nonfinite", "int64", "elements", "NaN and inf elements in the outputs"),
        _c("out_nan", "int64", "elements", "NaN elements in the outputs"),
        _c("in_amax", "float64", "", "largest finite |x| of the floating-point inputs"),
        _c("in_amin", "float64", "", "smallest value (signed) of the floating-point inputs"),
        _c("out_amax", "float64", "", "largest finite |x| of the floating-point outputs"),
        _c("in_zeros", "int64", "elements", "exact zeros in the floating-point inputs"),
        _c("out_zeros", "int64", "elements", "exact zeros in the outputs"),
        _c(
            "shadow_amax",
            "float64",
            "",
            "largest |x| of the same op recomputed in float32; null where not recomputed",
        ),
        _c(
            "shadow_nonfinite",
            "int64",
            "elements",
            "NaN and inf of the recomputed output: 0 means float32 would have survived",
        ),
        _c(
            "shadow_flushed",
            "int64",
            "elements",
            "recomputed nonzero where the observed output is 0 (observed underflow)",
        ),
        _c("shadow_sqnr_db", "float64", "dB", "10 log10(sum y^2 / sum (y - y_half)^2), y recomputed"),
        *PLACE,
    ),
    ("step", "segment", "seq"),
)

KERNELS = Table(
    "kernels",
    "Op and kernel times of one profiled segment, by torch.profiler.",
    (
        *KEY,
        _c("name", "dict", "", "op or kernel name"),
        _c("kind", "dict", "", "op (host) or kernel (device)"),
        _c("calls", "int64", "calls", "number of calls"),
        _c("self_host_s", "float64", "s", "host time without children"),
        _c("total_host_s", "float64", "s", "host time with children"),
        _c("self_device_s", "float64", "s", "device time without children"),
        _c("in_shapes", "dict", "", "input shapes, grouped"),
        _c("tensor_core", "bool", "", "the kernel's name is that of a tensor-core kernel; null for host ops"),
    ),
    ("step", "name"),
)

MODULES = Table(
    "modules",
    "One row per leaf or root module per sampled segment.",
    (
        *KEY,
        _c(
            "name",
            "dict",
            "",
            "as named_modules() names it, with the root's prefix when there are several roots",
        ),
        _c("class_name", "dict", "", "qualified class name"),
        _c("is_root", "bool", "", "an outermost forward"),
        _c("order", "int32", "", "order of the first call in the segment"),
        _c("calls", "int32", "calls", "forward calls in the segment"),
        _c("param_dtypes", "list<string>", "", "dtypes of its own parameters"),
        _c("in_dtypes", "list<string>", "", "dtypes of the floating-point tensor inputs of the last call"),
        _c("out_dtypes", "list<string>", "", "dtypes of the floating-point tensor outputs of the last call"),
        _c("in_devices", "list<string>", "", "device types of the tensor inputs"),
        _c(
            "autocast_dtype",
            "dict",
            "",
            "autocast dtype inside the call for the inputs' device; null when off",
        ),
        _c("grad_enabled", "bool", "", "grad mode inside the call"),
        _c("training", "bool", "", "module.training"),
        _c("forward_s", "float64", "s", "host time inside forward, all calls"),
        _c("thread_main", "bool", "", "called on the thread that runs backward"),
    ),
    ("name", "step"),
)

PARAMS = Table(
    "params",
    "Every parameter once, when an optimizer first steps (again when one changes).",
    (
        *KEY,
        _c("name", "dict", "", "parameter name; unnamed parameters are param#K of their optimizer"),
        _c("module", "dict", "", "module that owns it"),
        _c("dtype", "dict", "", "stored dtype"),
        _c("shape", "dict", "", "e.g. 64x32"),
        _c("numel", "int64", "elements", "elements"),
        _c("device", "dict", "", "device type"),
        _c("requires_grad", "bool", "", "trainable"),
        _c("owner", "dict", "", "optimizer that holds it; null when none does"),
        _c("group", "int32", "", "its parameter group"),
        _c("in_model", "bool", "", "reachable from a module that ran forward"),
        _c("got_grad", "bool", "", "its .grad was not None at the optimizer step or at the end"),
        _c("state_dtypes", "list<string>", "", "dtypes of its optimizer state tensors as name=dtype"),
        _c("eps", "float64", "", "eps of its group, if any"),
        _c("betas", "list<float64>", "", "betas of its group, if any"),
    ),
    ("name",),
)

SCALER = Table(
    "scaler",
    "GradScaler pulse: one row per update() or step() that ended a segment.",
    (
        *KEY,
        _c("scaler", "dict", "", "GradScaler#K, by order of construction or first use"),
        _c("scale", "float64", "", "scale in force for the gradients of this segment"),
        _c("scale_after", "float64", "", "scale after update(); null until update() is called"),
        _c("found_inf", "bool", "", "this optimizer's gradients held NaN or inf"),
        _c("skipped", "bool", "", "the optimizer step was skipped for it"),
        _c(
            "growth_tracker",
            "int64",
            "steps",
            "unskipped steps since the last change of the scale, after update()",
        ),
        _c("growth_factor", "float64", "", "policy"),
        _c("backoff_factor", "float64", "", "policy"),
        _c("growth_interval", "int64", "steps", "policy"),
        _c("init_scale", "float64", "", "policy"),
    ),
    ("step", "segment"),
)

NONFINITE = Table(
    "nonfinite",
    "Blame: which tensors were not finite when a step was skipped, or when weights, buffers or outputs went bad.",
    (
        *KEY,
        _c("name", "dict", "", "parameter, buffer or module output"),
        _c("module", "dict", "", "module that owns it"),
        _c("role", "dict", "", "grad, weight, buffer, activation, input or loss"),
        _c("order", "int32", "", "backward order of the gradient (0: nearest the loss); null elsewhere"),
        _c("dtype", "dict", "", "dtype"),
        _c("numel", "int64", "elements", "elements"),
        _c("nan", "int64", "elements", "NaN"),
        _c("posinf", "int64", "elements", "+inf"),
        _c("neginf", "int64", "elements", "-inf"),
        _c("scale", "float64", "", "loss scale in force"),
        _c("stale", "bool", "", "it was already non-finite when backward began"),
    ),
    ("step", "segment", "order"),
)

CALLS = Table(
    "calls",
    "AMP API and training-loop calls in order, with the user's line.",
    (
        *KEY,
        _c("seq", "int64", "", "order over the whole run"),
        _c("t", "float64", "s", "time since the start of the run"),
        _c(
            "call",
            "dict",
            "",
            "scaler.init/scale/unscale_/step/update/load_state_dict, backward, autograd.grad, optimizer.init/step/zero_grad/load_state_dict/add_param_group, clip_grad_norm_, clip_grad_value_, grad_edit, scheduler.step, autocast.enter/exit, model.load_state_dict, function.apply, deprecated, forward",
        ),
        _c(
            "object",
            "dict",
            "",
            "what it was called on: AdamW#0, GradScaler#0, autocast#3, LambdaLR#0, a module name",
        ),
        _c(
            "target",
            "dict",
            "",
            "the optimizer that a scaler call got, the device type of an autocast, a Function's class",
        ),
        _c(
            "scaled",
            "dict",
            "",
            "for backward: scaled, unscaled, mixed or unknown. For clip and grad_edit: whether the gradients carried the scale",
        ),
        _c(
            "value",
            "float64",
            "",
            "a number that says what happened: scale, total norm returned, factor of an edit, loss",
        ),
        _c("limit", "float64", "", "max_norm or clip_value"),
        _c(
            "dtype",
            "dict",
            "",
            "dtype of autocast, of the loss, of the gradients clipped or of the norm returned",
        ),
        _c(
            "params",
            "list<string>",
            "",
            "parameters that this backward fed, or that a clip or edit touched; at most 64 names",
        ),
        _c("n_params", "int32", "", "how many in all"),
        _c("enabled", "bool", "", "of the scaler or the autocast context"),
        _c("autocast_dtype", "dict", "", "autocast dtype in force at the call; null when off"),
        _c("thread_main", "bool", "", "called on the main thread"),
        _c("error", "dict", "", "class name of the exception that the call raised; null when it returned"),
        _c("message", "string", "", "its message, shortened"),
        _c("detail", "dict", "", "anything else worth a word, e.g. create_graph, skipped, cache_off"),
        *PLACE,
    ),
    ("proc", "seq"),
)

EVENTS = Table(
    "events",
    "Rare things: collector errors, the exception that ended the run, watch armed or caught, level changes, warnings.",
    (
        *KEY,
        _c("t", "float64", "s", "time since the start of the run"),
        _c(
            "event",
            "dict",
            "",
            "collector_error, exception, warning, watch_armed, watch_caught, budget, note, signal",
        ),
        _c("level", "dict", "", "info, warning or error"),
        _c("subject", "dict", "", "collector, exception class, or module"),
        _c("message", "string", "", "one sentence"),
        _c("traceback", "string", "", "traceback text for exceptions"),
        *PLACE,
    ),
    ("t",),
)

LEDGER = Table(
    "ledger",
    "What ampscope's own collectors cost.",
    (
        *KEY,
        _c("collector", "dict", "", "collector name"),
        _c("calls", "int64", "calls", "entries into the collector since its last row"),
        _c("host_s", "float64", "s", "own host time since its last row"),
        _c("device_s", "float64", "s", "own device time by events; null without CUDA"),
        _c("elements", "int64", "elements", "tensor elements read"),
        _c("rows", "int64", "rows", "rows written"),
        _c("why", "dict", "", "what the budget controller chose and why"),
    ),
    ("step", "collector"),
)

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        STEPS,
        TENSORS,
        UPDATES,
        OPS,
        KERNELS,
        MODULES,
        PARAMS,
        SCALER,
        NONFINITE,
        CALLS,
        EVENTS,
        LEDGER,
    )
}
