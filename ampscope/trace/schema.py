"""The one place that names the tables and columns of a trace, with unit and meaning of each.

Imports nothing but the standard library: the training process reads it before pyarrow is loaded. One column
per line: name, type, [unit], meaning; an indented line continues the meaning.
"""

from __future__ import annotations

from ampscope.trace.table import Column, Table, columns

__all__ = ["HIST_MIN", "SCHEMA_VERSION", "TABLES", "Column", "Table"]

SCHEMA_VERSION = (1, 1)
"""(major, minor). A reader reads any minor of its own major and refuses a newer major."""

HIST_MIN = -127
"""Exponent of the lowest bin: bin e counts finite nonzero |x| in [2^e, 2^(e+1)); bin -127 holds every
|x| < 2^-126 (float32 subnormals and what float64 narrows to them)."""


# fmt: off
KEY = tuple(columns("""
step int64 optimizer step of the user's run, from 0; what leads to a step is filed under it
segment int64 segment of the run: ends when an outermost optimizer step or skip returns
micro int32 micro-batch (backward call) within the segment, from 0
proc int32 number of the training process within the run and rank
phase dict forward, recompute, backward, optimizer or other
opt dict optimizer that ended the segment: class name and ordinal, e.g. AdamW#0
opt_step int64 how often that optimizer was asked to step before (skipped included)
"""))
"""Leads every table. `rank` is not stored in the files: it is the hive partition `rank=K` of their path."""

PLACE = tuple(columns("""
file dict the user's source file: the innermost frame outside torch and ampscope
line int32 line in that file
function dict function of that line
"""))

STATS = tuple(columns("""
dtype dict dtype of the tensor that was read, e.g. float16
numel int64 [elements] elements read
of_numel int64 [elements] elements of the whole tensor
zeros int64 [elements] exact zeros
nan int64 [elements] NaN
posinf int64 [elements] +inf
neginf int64 [elements] -inf
ge_65520 int64 [elements] finite |x| >= 65520: what a cast to float16 turns into inf
amax float64 largest finite |x|; null when no element is finite
amin_nonzero float64 smallest nonzero finite |x|; null when there is none
sum float64 sum of the finite elements
sumsq float64 sum of squares of the finite elements
sumabs float64 sum of |x| of the finite elements
hist_lo int16 [log2] exponent e of hist[0]; bin e counts |x| in [2^e, 2^(e+1))
hist list<int64> [elements] one count per binade from hist_lo upwards, trimmed at both ends
"""))

STEPS = Table(
    "steps",
    "One row per segment: a step, a skip, or work that was abandoned.",
    (*KEY, *columns("""
outcome dict stepped, skipped, abandoned (backward without a step) or cut_off (run ended)
skipped bool the GradScaler found a non-finite gradient and left the weights alone
t_start float64 [s] start, since the start of the run
duration_s float64 [s] wall time from the end of the previous segment to the end of this one
data_s float64 [s] host time before the first forward: data loading and other user code
forward_s float64 [s] host time in forward: from the first root forward to backward
backward_s float64 [s] host time inside backward
unscale_s float64 [s] host time from backward to the optimizer: unscale and clipping
optimizer_s float64 [s] host time inside the optimizer step
forward_device_s float64 [s] the same by device events; null without a CUDA device
backward_device_s float64 [s] the same by device events
optimizer_device_s float64 [s] the same by device events
loss float64 mean over the segment's backward roots, the loss scale taken out; NaN and inf kept
loss_dtype dict dtype of the loss before scaling
n_backward int32 [calls] backward calls in the segment; null where ampscope rested
root_sum float64 float32 sum of the last root module output; non-finite shows a bad forward
lr float64 learning rate of the first parameter group when the optimizer stepped
scale float64 loss scale in force during the segment; null without an enabled GradScaler
autocast_dtype dict autocast dtype of the last root forward, also when entered in its first lines; null when off
autocast_device dict autocast device type at the last root forward
level dict count, pulse, range, census, profile or watch: the most that was collected in the segment. Of one that was
    only counted, calls and phases are not known, unless it failed. Where n_backward is null, ampscope rested: only
    whether it stepped or was skipped, and the loss scale, are known
host_rss int64 [bytes] resident memory of the process
device_allocated int64 [bytes] device memory allocated when the segment ended; null without CUDA
own_s float64 [s] ampscope's own host time within the segment
""")),
    ("step", "segment"),
)

TENSORS = Table(
    "tensors",
    "Range level: exponent histogram and counters of one tensor at one moment.",
    (*KEY, *columns("""
name dict parameter name, or module name + :out (also :out1 ...) for activations
module dict module that owns it, as named_modules() names it
role dict weight, grad, activation, activation_grad, update, exp_avg, exp_avg_sq, momentum or buffer
stage dict pre_unscale, pre_clip or post_clip for gradients; null elsewhere
scaled bool the values carry the loss scale; null when unknown
scale float64 the loss scale they carry: divide by it to get true values; 1 when unscaled
basis dict observed, predicted (computed from an observed histogram) or estimated
order int32 order of occurrence within the segment: forward or backward order
"""), *STATS),
    ("role", "name", "step", "segment"),
)

UPDATES = Table(
    "updates",
    "What one optimizer step did to one parameter, element by element on a fixed subset.",
    (*KEY, *columns("""
name dict parameter name
module dict module that owns it
dtype dict dtype in which the parameter is stored
numel int64 [elements] elements compared
of_numel int64 [elements] elements of the whole parameter
grad_nonzero int64 [elements] compared elements whose gradient was finite and not zero
unchanged int64 [elements] of those: stored bits equal before and after. In a float16/bfloat16 parameter these
    updates were absorbed (observed)
survives bool float16/bfloat16 parameters: updates that nearest rounding loses were seen to arrive, in this step or over
    the steps since the first compared one (stochastic rounding, compensated sums); null when it cannot be told
absorbed_fp16 int64 [elements] nonzero updates with round16(w+dw) == round16(w): what a float16 weight would
    lose (predicted; for float32 parameters)
absorbed_bf16 int64 [elements] the same for bfloat16
moved int64 [elements] compared elements with a nonzero update
below_2_11 int64 [elements] moved elements with |dw|/|w| < 2^-11
below_2_8 int64 [elements] moved elements with |dw|/|w| < 2^-8
update_norm float64 Euclidean norm of dw over the compared elements
weight_norm float64 Euclidean norm of w before the step over the compared elements
update_amax float64 largest finite |dw|
nonfinite_after int64 [elements] compared elements that are NaN or inf after the step
lr float64 learning rate of the parameter's group
ratio_lo int16 [log2] exponent of ratio_hist[0]
ratio_hist list<int64> [elements] histogram of |dw|/|w| per binade, moved elements with w != 0
""")),
    ("name", "step", "segment"),
)

OPS = Table(
    "ops",
    "Census and watch: one row per aten op call, in order.",
    (*KEY, *columns("""
seq int64 order of the call within the segment
op dict e.g. aten::mm; overload dropped
module dict innermost module of the call, or of the forward op whose backward this is
in_dtypes list<string> dtypes of the tensor inputs
out_dtypes list<string> dtypes of the tensor outputs
in_shapes list<string> shapes of the tensor inputs, e.g. 16x32
out_shapes list<string> shapes of the tensor outputs
device dict device type of the first output
in_bytes int64 [bytes] bytes of the tensor inputs
out_bytes int64 [bytes] bytes of the tensor outputs
flops float64 floating-point operations of a matmul or convolution; null elsewhere
host_s float64 [s] host time of the call under the dispatch mode: an upper bound, for ranking only
cast dict null, autocast (a cast that autocast inserted), user, or promotion (autograd's, for an op that mixed dtypes)
cast_source dict for a cast: name of the parameter that was cast, if it was one
half_casts int32 casts to float16 written on the user's line, .half() or .to(torch.float16); null for none. One that changes nothing is no op
tensor_ids list<int64> identities of inputs then outputs within the segment, to follow data flow
scalars list<float64> Python-number arguments of the call in order (eps, clamp bounds, factors)
in_nonfinite int64 [elements] NaN and inf elements in the inputs
out_nonfinite int64 [elements] NaN and inf elements in the outputs
out_nan int64 [elements] NaN elements in the outputs
in_amax float64 largest finite |x| of the floating-point inputs
in_amin float64 smallest value (signed) of the floating-point inputs
out_amax float64 largest finite |x| of the floating-point outputs
in_zeros int64 [elements] exact zeros in the floating-point inputs
out_zeros int64 [elements] exact zeros in the outputs
shadow_amax float64 largest |x| of the same op recomputed in float32; null where not recomputed
shadow_nonfinite int64 [elements] NaN and inf of the recomputed output: 0 means float32 would have survived
shadow_flushed int64 [elements] recomputed nonzero where the observed output is 0 (observed underflow)
shadow_sqnr_db float64 [dB] 10 log10(sum y^2 / sum (y - y_half)^2), y recomputed
absorbed int64 [elements] of a half add, sub, lerp, addcmul, addcdiv or mul: kept their value though the increment is not 0
error dict exception class that the call raised; null when it returned
reached dict watch: how far the non-finite result of this op went: loss, gradient or weight; null: nowhere, or not a transition
"""), *PLACE),
    ("step", "segment", "seq"),
)

KERNELS = Table(
    "kernels",
    "Op and kernel times of one profiled segment, by torch.profiler.",
    (*KEY, *columns("""
name dict op or kernel name
kind dict op (host) or kernel (device)
calls int64 [calls] number of calls
self_host_s float64 [s] host time without children
total_host_s float64 [s] host time with children
self_device_s float64 [s] device time without children
in_shapes dict input shapes, grouped
tensor_core bool the kernel's name is that of a tensor-core kernel; null for host ops
""")),
    ("step", "name"),
)

MODULES = Table(
    "modules",
    "One row per leaf or root module per sampled segment.",
    (*KEY, *columns("""
name dict as named_modules() names it, with the root's prefix when there are several roots
class_name dict qualified class name
is_root bool an outermost forward
order int32 order of the first call in the segment
calls int32 [calls] forward calls in the segment
param_dtypes list<string> dtypes of its own parameters
in_dtypes list<string> dtypes of the floating-point tensor inputs of the last call
out_dtypes list<string> dtypes of the floating-point tensor outputs of the last call
in_devices list<string> device types of the tensor inputs
autocast_dtype dict autocast dtype inside the call for the inputs' device; null when off
grad_enabled bool grad mode inside the call
training bool module.training
forward_s float64 [s] host time inside forward, all calls
thread_main bool called on the thread that runs backward
""")),
    ("name", "step"),
)

PARAMS = Table(
    "params",
    "Every parameter once, when an optimizer first steps (again when one changes).",
    (*KEY, *columns("""
name dict parameter name; unnamed parameters are param#K of their optimizer
module dict module that owns it
dtype dict stored dtype
shape dict e.g. 64x32
numel int64 [elements] elements
device dict device type
requires_grad bool trainable
owner dict optimizer that holds it; null when none does
group int32 its parameter group
in_model bool reachable from a module that ran forward
got_grad bool its .grad was not None at the optimizer step or at the end
state_dtypes list<string> dtypes of its optimizer state tensors as name=dtype
eps float64 eps of its group, if any
betas list<float64> betas of its group, if any
""")),
    ("name",),
)

SCALER = Table(
    "scaler",
    "GradScaler pulse: one row per update() or step() that ended a segment.",
    (*KEY, *columns("""
scaler dict GradScaler#K, by order of construction or first use
scale float64 scale in force for the gradients of this segment
scale_after float64 scale after update(); null until update() is called
found_inf bool this optimizer's gradients held NaN or inf
skipped bool the optimizer step was skipped for it
growth_tracker int64 [steps] unskipped steps since the last change of the scale, after update()
growth_factor float64 policy
backoff_factor float64 policy
growth_interval int64 [steps] policy
init_scale float64 policy
""")),
    ("step", "segment"),
)

NONFINITE = Table(
    "nonfinite",
    ("Blame: which tensors were not finite when a step was skipped, or when weights, buffers or outputs "
     "went bad."),
    (*KEY, *columns("""
name dict parameter, buffer or module output
module dict module that owns it
role dict grad, weight, buffer, activation, input or loss
order int32 backward order of the gradient (0: nearest the loss); null elsewhere
dtype dict dtype
numel int64 [elements] elements
nan int64 [elements] NaN
posinf int64 [elements] +inf
neginf int64 [elements] -inf
scale float64 loss scale in force
stale bool it was already non-finite when backward began
""")),
    ("step", "segment", "order"),
)

CALLS = Table(
    "calls",
    "AMP API and training-loop calls in order, with the user's line.",
    (*KEY, *columns("""
seq int64 order over the whole run
t float64 [s] time since the start of the run
call dict scaler.init/scale/unscale_/step/update/load_state_dict, backward, autograd.grad,
    optimizer.init/step/zero_grad/load_state_dict/add_param_group, clip_grad_norm_, clip_grad_value_,
    grad_edit, scheduler.step, autocast.enter/exit, model.load_state_dict, function.apply, deprecated,
    forward
object dict what it was called on: AdamW#0, GradScaler#0, autocast#3, LambdaLR#0, a module name
target dict the optimizer that a scaler call got, the device type of an autocast, a Function's class
scaled dict for backward: scaled, unscaled, mixed or unknown. For clip and grad_edit: whether the
    gradients carried the scale
value float64 a number that says what happened: scale, total norm returned, factor of an edit, loss
limit float64 max_norm or clip_value
norm float64 for grad_edit: norm of all gradients that were looked at, after the edit
dtype dict dtype of autocast, of the loss, of the gradients clipped or of the norm returned
params list<string> parameters that this backward fed, or that a clip or edit touched; at most 64 names
n_params int32 how many in all
enabled bool of the scaler or the autocast context
autocast_dtype dict autocast dtype in force at the call; null when off
thread_main bool called on the main thread
error dict class name of the exception that the call raised; null when it returned
message string its message, shortened
detail dict anything else worth a word, e.g. create_graph, skipped, cache_off
"""), *PLACE),
    ("proc", "seq"),
)

EVENTS = Table(
    "events",
    ("Rare things: collector errors, the exception that ended the run, watch armed or caught, level "
     "changes, warnings."),
    (*KEY, *columns("""
t float64 [s] time since the start of the run
event dict collector_error, exception, warning, watch_armed, watch_caught, budget, note, signal
level dict info, warning or error
subject dict collector, exception class, or module
message string one sentence
traceback string traceback text for exceptions
"""), *PLACE),
    ("t",),
)

LEDGER = Table(
    "ledger",
    "What ampscope's own collectors cost.",
    (*KEY, *columns("""
collector dict collector name
calls int64 [calls] entries into the collector since its last row
host_s float64 [s] own host time since its last row
device_s float64 [s] own device time by events; null without CUDA
elements int64 [elements] tensor elements read
rows int64 [rows] rows written
why dict what the budget controller chose and why
""")),
    ("step", "collector"),
)

# fmt: on

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
