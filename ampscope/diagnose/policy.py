"""Every threshold of the diagnosis, each with the reason for its value. Nothing else decides by a number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """The thresholds. Shares are fractions of 1, binades are factors of two."""

    # -- how much of a trace is read -----------------------------------------------------------------

    max_calls: int = 60_000
    """Calls read from the start and from the end of each process. A training step makes about ten, so this
    covers thousands of steps at each end; faults of call order repeat in every step."""
    max_tensor_rows: int = 30_000
    """Rows of the table tensors that one question reads: 60 tensors at 500 moments, about 60 MB."""
    max_op_rows: int = 60_000
    """Rows of the table ops that one question reads: ten censuses of a large model."""

    max_transitions: int = 2_000
    """Ops that turned finite into non-finite which are looked at: a fault repeats, the first ones tell."""

    # -- loss scale ----------------------------------------------------------------------------------

    scale_matters: float = 16.0
    """Below this loss scale, gradients that carry it by mistake are off by less than the learning rates that
    people try anyway, and a factor cannot be told from a division by the number of micro-batches."""
    hand_unscale_log2: float = 0.5
    """A factor applied to the gradients that is 1/scale to within half a binade is meant to take out the scale."""
    same_factor: float = 1.01
    """Ratio of the factors of two gradients that were multiplied by one number: room for rounding in half."""
    mild_edit: float = 8.0
    """Shrinkage of a gradient's norm that an average over replicas may bring (the square root of their number) and a
    projection; it may double in a sum of two. Clamping scaled gradients to limits that are meant for unscaled ones
    shrinks it by about the loss scale, and noise adds to it."""
    scaled_limit: float = 1e-3
    """A clip limit above a thousandth of the loss scale was multiplied by the scale: limits in use are 0.001 and
    more, scales at least 16."""
    warmup_skips: int = 24
    """Leading skipped steps that belong to the search for the scale: halving from 2^16 to 2^-8."""
    growth_skip_slack: int = 2
    """An overflow at most this many updates after the scale grew is an answer to that growth."""
    sawtooth_min_skips: int = 4
    """Skips after a growth that make a pattern: three can be chance in a short run."""
    sawtooth_skip_rate: float = 0.02
    """Catalogue: from 2 % of steps lost the growth interval is worth changing; the default interval of 2000
    costs 0.05 %."""
    collapse_binades: float = 6.0
    """Catalogue: a fall by 2^6 after warm-up is six unanswered overflows, not a search."""
    settled_steps: int = 10
    """Good steps after a fall that show a scale found anew: a cause that remains skips again before that."""
    tiny_scale: float = 1.0
    """A loss scale below 1 divides the gradients: the scaler runs from an overflow that it cannot cure."""
    init_high_skips: int = 4
    """Leading skips from which a lower init_scale is worth a word: sums over a batch need 2^16 to 2^12."""
    init_high_share: float = 0.15
    """Leading skips above this share of all steps cost real training; below it they are noise."""
    init_high_run: int = 500
    """In a run of more steps than this, a handful of lost first steps is not worth a word."""
    starver_overflows: int = 3
    """Overflows from which one optimizer can be blamed for the scale that it shares."""
    unbounded_scale: float = 2.0**24
    """Above 2^24 the scale exceeds the whole fp16 range of 2^-24 to 1: no gradient can need it."""
    starved_headroom_binades: float = 4.0
    """Catalogue: with 2^4 of room up to 65504 the scale can be raised and the search still has slack."""

    # -- underflow -----------------------------------------------------------------------------------

    flushed_warning: float = 0.10
    """A tenth of the gradient elements lost is where Micikevicius et al. (ICLR 2018, section 3.2) and the
    reports behind the catalogue begin to see slower training; a few percent are normal in healthy runs."""
    flushed_critical: float = 0.50
    """When most of a gradient is gone its direction is gone as well."""
    lossy_sqnr_db: float = 30.0
    """Signal to quantisation noise of the worst backward op below which underflow is felt: plain fp16 rounding
    gives 73 dB; 30 dB is an error of 3 % of the norm; healthy runs measured 58 dB and more."""
    scale_slack_binades: float = 3.0
    """Room that advice for a loss scale leaves below 65504: gradients vary by that much between batches."""
    largest_advised_scale: float = 65536.0
    """The default init_scale: from there the scaler finds its own way."""
    underflow_min_elements: int = 64
    """Shares of fewer elements than this say nothing."""

    # -- forward range -------------------------------------------------------------------------------

    latent_binades: float = 2.0
    """Catalogue: two binades below 65504, one or two doublings away from inf."""
    latent_growth_log2: float = 0.25
    """Growth in binades, from the first to the last quarter of the samples, that is a trend, not noise."""
    latent_horizon: float = 2.0
    """A forecast further away than twice the run that was seen is guesswork."""
    latent_min_samples: int = 6
    """Fewer samples make no trend."""

    # -- where trouble began -------------------------------------------------------------------------

    one_off_steps: int = 2
    """So many lost steps in a run are an outlier in the data, not a fault that comes back."""
    most_suspects: int = 3
    """Lines that may have made a gradient infinite while nobody recorded ops: more of them name none."""
    divergence_ratio: float = 10.0
    """A loss ten times what it was has left the region that it trained in; noise between batches is a factor of
    two to three."""
    divergence_weights: float = 2.0
    """Weights that double within the run before the failure move by as much as they are."""
    divergence_update: float = 0.5
    """An update of half the weights forgets what they were; healthy first steps are below a tenth."""
    spike_ratio: float = 4.0
    """A loss four times the median before it is beyond the noise of batches."""
    spike_window: int = 20
    """Steps before a jump that tell what the loss was."""
    spike_length: int = 2
    """A single high loss is a hard batch."""
    spike_growth: float = 1.5
    """Growth of the largest output of a module across a jump that goes with it."""
    spike_at_once: float = 1.2
    """Of that growth, what has to be there at the very step of the jump: the loss is high because the outputs are. The
    largest of a batch differs by a tenth from one to the next."""
    spike_seen_within: int = 2
    """Steps from the jump within which an output has to have been read."""
    vanishing_ratio: float = 1e-4
    """Gradients of the first layers of healthy networks are within a hundredth of those of the last; ten thousand
    times smaller they do not train them."""
    vanishing_size: float = 1e-8
    """Adam divides by sqrt(v) + 1e-8, and 1e-8 of a weight of one is below half a unit in the last place of
    float32: smaller gradients change nothing in any precision."""
    vanishing_share: float = 0.25
    """Share of the weights concerned that makes it a fault of the network and not of one unused layer."""
    silent_share: float = 0.01
    """Share of results that an overflow turned to zero from which part of a layer is silent."""

    # -- updates and optimizer state -----------------------------------------------------------------

    absorbed_warning: float = 0.5
    """Half of the updates lost: the learning rate is off by two, more than any schedule intends."""
    absorbed_critical: float = 0.8
    """With four of five updates lost the weights stay put, as the reports of flat bf16 runs show."""
    absorbed_min_steps: int = 2
    """One step alone can be the end of a schedule."""
    fp16_zero: float = 2.0**-25
    """An eps at or below 2^-25 rounds to zero in fp16 (IEEE 754-2019, half of the smallest subnormal)."""
    vanished_state: float = 0.05
    """Share of zero second moments, under a nonzero gradient, from which Adam divides by eps alone."""

    average_reach: float = 0.05
    """Half an ulp divided by the weight of a running average: how far, relative to the average, its target must be
    off before it moves at all. 5 % of a weight is more than copies for evaluation or distillation bear."""
    average_reach_certain: float = 0.25
    """From this reach on a running average in half is stuck whatever is observed: no target drifts by a quarter."""
    sum_growth: float = 4.0
    """A value that grew by this factor while it was watched is a running sum."""
    sum_margin: float = 1.25
    """How far beyond the point where it stops the sum must be heading within the run to be worth a word."""
    sum_drift: float = 2.0
    """Ratio of two growth rates per step within which a sum grows evenly and was not reset in between."""
    moment_min_steps: int = 32
    """In fewer steps a second moment with beta2 = 0.999 has hardly moved in exact arithmetic either."""
    moment_asked: float = 0.2
    """Change of a second moment, relative to itself, that gradients must ask for before its absence counts: their
    squares vary by less from sample to sample, averaged over a parameter."""
    moment_followed: float = 0.1
    """Below this part of the change that was asked for, a second moment stands still: float32 moments of healthy runs
    follow by 0.27 and more where few steps were sampled in between, frozen ones by 0.01 and less."""
    vanished_moment: float = 0.5
    """Share of zero or subnormal second moments, under nonzero gradients, from which Adam has lost its scaling."""
    eps_meant: float = 1e-6
    """An eps above this was chosen to damp the steps, as reinforcement learning and Inception recipes do."""
    eps_margin: float = 10.0
    """How many times the root of a second moment eps must be to decide the step: at equality it halves it."""
    eps_share: float = 0.5
    """Share of elements whose step eps decides, from which Adam behaves as plain gradient descent."""
    tiny_step: float = 1e-2
    """Adam's first steps are about the learning rate itself, whatever the gradient; a hundredth of it is not Adam."""
    adam_rate_most: float = 0.1
    """Adam's learning rates lie below; methods that find their own step size (Prodigy, D-Adaptation) are given 1."""
    early_samples: int = 4
    """Samples in which Adam's steps still are about the learning rate: later, convergence makes them smaller."""
    frozen_update: float = 1e-6
    """Update relative to the weights at which a million steps move them by their own size."""
    frozen_gradient: float = 1e-4
    """That update in learning rates: gradients this small beside the weights make any usual rate ineffective."""
    frozen_for_sure: float = 1e-6
    """A gradient below this is no longer that of weights that are large by nature (physical units, an offset): such
    were seen at 7e-6."""
    asking_gradient: float = 0.1
    """Of the largest gradient norm seen: steps with a smaller gradient are those of a run that has converged."""

    # -- which precision runs ------------------------------------------------------------------------

    tensor_core_capability: float = 7.0
    """CUDA compute capability from which GPUs have fp16 matrix units (Volta)."""
    idle_matmul_share: float = 0.99
    """Share of matmul work in float32 that counts as all: a tiny head may be float32 on purpose."""

    island_share: float = 0.05
    """Float32 share of the matmul work of a low-precision run from which a word is worth it: a head or a loss may be
    float32 on purpose."""
    island_costly: float = 0.3
    """From this share on a GPU loses a good part of what low precision gains."""
    island_headroom: float = 3.0
    """Binades below 65504 that make it safe to lower a float32 region to fp16: activations grow during training."""
    recasts: int = 4
    """Casts of one weight for one backward that show a cast in a loop: two views of a batch and the recompute of a
    checkpoint give two or three."""
    cast_share: float = 0.03
    """Catalogue: a few percent of the time of all ops."""
    promoted_share: float = 0.05
    """Share of the forward's bytes that a promotion to float32 must cause before it is worth a word."""
    tf32_capability: float = 8.0
    """CUDA compute capability from which TF32 exists (Ampere)."""
    float32_matmul_share: float = 0.1
    """Share of the device time in float32 matmul kernels from which TF32 is noticeable."""

    # -- speed and memory ----------------------------------------------------------------------------

    core_multiple: int = 8
    """Tensor cores take fp16 and bf16 matrices whose dimensions are multiples of 8 at full speed (cuBLAS)."""
    misaligned_share: float = 0.2
    """Share of the half matmul work with other dimensions from which padding pays."""
    plain_kernel_share: float = 0.1
    """Share of the device time in half matmul kernels without tensor cores that is worth a change of shapes."""
    slower: float = 1.1
    """Ratio of step times that is more than noise in a median of many steps."""
    compared_steps: int = 10
    """Steps on either side of a comparison of step times."""
    tiny_matmul: float = 2.0**16
    """Operations of a matmul that are done in a tenth of the time it takes to dispatch it: a microsecond at 6e10
    operations per second, against ten."""
    busy_share: float = 0.3
    """Share of the step in which the device computes, below which launches and the host set the pace."""
    waiting_share: float = 0.5
    """Share of the step before the first forward from which the input, not the arithmetic, sets the pace."""
    waiting_s: float = 5e-3
    """Shorter waits are Python, not data loading."""
    sync_share: float = 0.05
    """Share of the step spent waiting for the device because of a value that the host asked for."""
    unsaved_share: float = 0.5
    """Share of the bytes of module outputs that stay float32 in a low-precision run."""
    unsaved_costly: float = 0.8
    """With norms in float32, as CUDA autocast has them, half of the bytes are float32 in healthy transformers."""

    # -- next precision ------------------------------------------------------------------------------

    ready_flushed: float = 0.05
    """Share of a tensor that may become zero in the next precision: half of what counts as a fault in the present
    one, because what a histogram predicts has to be borne out."""
    ready_skips: float = 0.2
    """Skipped share of the steps above which the present precision has to be mended first."""
    fp4_flushed: float = 0.2
    """The same for FP4: a normal distribution, scaled by its largest of 1e4 to 1e6 elements, loses 13 to 17 %, so that
    more than this is the work of outliers."""
    ready_samples: int = 3
    """Samples of a tensor from which its range is known."""
    fp16_headroom: float = 1.0
    """Binades below 65504 that a forward value needs so that fp16 is worth trying."""

    never_taken: int = 3
    """Skipped steps that make up a run in which none was taken: fewer are the start of a scale search."""
    never_stepped: int = 5
    """Backwards without any step: fewer are a check, a saliency map or a learning-rate finder's first look."""
    starved_steps: int = 2
    """Steps without any gradient: one may be the dummy step that some schedulers ask for."""

    # -- scheduler and restarts ----------------------------------------------------------------------

    scheduler_lost: int = 3
    """Scheduler steps without an optimizer step: one or two belong to the normal scale search."""
    scheduler_lost_share: float = 0.05
    """Below a twentieth of the schedule its shape is not changed visibly."""
    fresh_scalers: int = 3
    """GradScalers in one process, each stepped and none updated, that show a scaler built in every iteration."""
    restart_skips: int = 2
    """Skips right after a restart that show a scale found anew; one may be chance."""


POLICY = Policy()
