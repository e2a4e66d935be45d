//! The check at load. It runs a batch of many tokens, a token with a few drafts and then a token alone, step by step,
//! with the kernels, shapes and weights of the model's own plans.
//!
//! If a driver compiles a kernel wrongly, all answers of a model are wrong, and nothing reports that. So at the first
//! load on an adapter the first dense layer, the first layer of experts, the head and the sampling are run one step at
//! a time. Some outputs of each step are computed again on the CPU, from the step's inputs and from the weights as the
//! file has them. A wrong kernel is replaced. The self-test checks far more, and needs no model.

use super::batch_plan::{most_drafts, plan_alone, sampled_bytes};
use super::kernel_selection::works;
use super::options::DriverTimeouts;
use super::plan_batch;
use super::planner::Planner;
use super::progress::{LoadStage, Meter};
use super::rows::WeightRows;
use super::verdict::Check;
use super::weight_table::WeightTable;
use super::{BatchPlan, BatchShape, BatchWriter, CacheShape, Config, Model, ModelWeights, Outputs, PromptOptions};
use crate::error::{Error, KernelFault, KernelFinding, Result};
use crate::gpu::{Buffer, Fetch};
use crate::kernels::Sampling;
use crate::memory::zeros;
use crate::plan::{Checker, Executor, LocalId, Plan, RowHeader, Sample, Step, Target, Weight};
use crate::shader::{Pipelines, Variant};
use crate::speculate::DraftKind;
use crate::threads::StopCheck;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::iter::once;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The number of tokens of the batch of a prompt at load, which is more than the kernels of few rows compute.
const TOKENS: usize = 40;
/// The number of rows of the batch with drafts at load, which the kernels of few rows compute.
const FEW: usize = 4;
/// The number of tokens before the one that is checked, if no batch is checked before it.
const BEFORE: usize = 3;
/// The capacity of the cache in tokens, in addition to those of the batches.
const MORE: usize = 24;
/// More than a [`Checker`] takes to read outputs back, in bytes.
const READ_BACK: u64 = (1 << 18) + 64;
/// How long a step has run at least if the system stopped it and the device was lost. Systems wait for seconds.
const MIN_HANG: Duration = Duration::from_secs(1);

/// Checks the kernels of a model that is being loaded.
pub(super) struct Subject<'a> {
    pub planner: &'a Planner<'a>,
    /// Its device handle waits as long as a step may take.
    pub pipelines: &'a Pipelines,
    pub weights: &'a [Buffer],
    /// The batches whose kernels are checked before those of a token.
    pub batches: Vec<CheckedBatch>,
    /// Shaders, by the splits of their plans, whose outputs need not be compared again.
    pub proven: &'a HashSet<(Variant, usize)>,
    /// What has been compared.
    pub looked: Cell<Looked>,
    /// Counts the steps.
    pub meter: &'a Meter,
    /// How long a step may take.
    pub timeouts: DriverTimeouts,
}

/// A batch whose kernels are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckedBatch {
    /// The most rows of its plan.
    pub capacity: usize,
    /// The rows whose logits its plan computes.
    pub outputs: Outputs,
    /// The position of its first token.
    pub position: usize,
    /// The number of its tokens.
    pub tokens: usize,
}

impl CheckedBatch {
    /// The batches that are checked at load, if their kernels are compiled (`all`) or always checked: one of many
    /// tokens, if prompts are computed in batches, and after it a token with drafts, if the model verifies any.
    pub(super) fn at_load(config: &Config, options: (PromptOptions, DraftKind), check: Check, all: bool) -> Vec<Self> {
        let (prompt, guesses) = options;
        if check == Check::Never || !all && check != Check::Always {
            return Vec::new();
        }
        let tokens = TOKENS.min(prompt.together());
        let many = |tokens| Self { capacity: prompt.capacity_for(tokens), outputs: Outputs::Last, position: 0, tokens };
        let mut batches: Vec<Self> = (tokens > 1).then(|| many(tokens)).into_iter().collect();
        if guesses != DraftKind::Off && most_drafts(config) >= FEW {
            let position = batches.first().map_or(0, Self::end);
            batches.push(Self { capacity: FEW, outputs: Outputs::Verified, position, tokens: FEW });
        }
        batches
    }

    /// The position after its last token.
    fn end(&self) -> usize {
        self.position + self.tokens
    }

    /// The rows of these tokens.
    fn rows(&self, tokens: &[u32]) -> Vec<RowHeader> {
        let mut rows = RowHeader::consecutive(self.position, tokens);
        if self.outputs == Outputs::Verified {
            // After the entry of the one sequence in `Plan::SAMPLED` come those of its rows.
            rows.iter_mut().zip(1..).for_each(|(row, entry)| row.result = entry);
        }
        rows
    }
}

/// What was compared.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Looked {
    outputs: usize,
    /// The largest error, as a fraction of the allowed error.
    worst: f64,
}

impl Looked {
    fn with(self, samples: &[(Sample, f64)]) -> Self {
        let share = |(sample, got): &(Sample, f64)| sample.error(*got) / sample.tolerance.max(f64::MIN_POSITIVE);
        let shares = samples.iter().map(share).filter(|share| share.is_finite());
        Self { outputs: self.outputs + samples.len(), worst: shares.fold(self.worst, f64::max) }
    }
}

impl Model {
    /// The first kernel that cannot be used in the plans for a target: those of the batches, and of a token. Outputs of
    /// shaders in `proven` are not compared.
    ///
    /// # Errors
    /// See [`Subject::check`].
    pub(crate) fn unusable_kernel(
        &self,
        (target, pipelines): (&Target, &Pipelines),
        batches: Vec<CheckedBatch>,
        proven: &HashSet<(Variant, usize)>,
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Option<KernelFinding>> {
        let (config, weights, cache, gpu) = (self.config(), self.model_weights(), self.cache(), self.gpu());
        let (prompt, guesses) = (self.prompt_options(), DraftKind::Off);
        let planner = &Planner { config, weights, cache, prompt, guesses, gpu, all: false };
        let (weights, meter, timeouts) = (self.weights(), &Meter::default(), DriverTimeouts::on(gpu.report()));
        let pipelines = &pipelines.through(&gpu.patient(timeouts.run));
        let looked = Cell::default();
        Subject { planner, pipelines, weights, batches, proven, looked, meter, timeouts }.check(target, check_stop)
    }
}

/// A plan on the device.
struct Made<'a> {
    plan: &'a Plan,
    executor: Executor,
}

impl Subject<'_> {
    /// The first kernel that cannot be used in the plans for a target.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the error of `check_stop`; any error from the device.
    pub fn check(&self, target: &Target, check_stop: &mut StopCheck<'_>) -> Result<Option<KernelFinding>> {
        let Planner { config, weights, cache, .. } = *self.planner;
        let (planned, batches) = checked_plans((weights, config, cache), target, &self.batches)?;
        let plans = || once(&planned.plan).chain(batches.iter().map(|batch| &batch.plan));
        let steps = plans().flat_map(|plan| self.steps(plan)).map(|steps| steps.len());
        let variants = plans().flat_map(|plan| plan.variants.clone()).collect::<Vec<_>>();
        let (meter, missing) = (self.meter, self.pipelines.missing(&variants).count());
        meter.expect(LoadStage::Check, (steps.sum::<usize>() + missing) as u64);
        let compiled = || meter.add(LoadStage::Check, 1);
        if let Some(refusal) = self.pipelines.try_prepare(&variants, &compiled, check_stop)?.first() {
            return Ok(Some(refusal.into()));
        }
        let token = Made { executor: Executor::new(self.pipelines, &planned.plan, self.weights)?, plan: &planned.plan };
        let mut random = Pcg32::seed_from_u64(RandomState::new().build_hasher().finish());
        for (batch, checked) in batches.iter().zip(&self.batches) {
            let fault = self.batch(batch, &planned, &token.executor, checked, &mut random, check_stop)?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
        if let Some(last) = self.batches.last() {
            return self.token(&planned, &token, last.end(), &mut random, check_stop);
        }
        for position in 0..BEFORE {
            self.write(&token, &RowHeader::consecutive(position, &[self.pick(&mut random)]))?;
            let steps = self.layers(&planned.plan);
            self.meter.expect(LoadStage::Check, steps.iter().map(|steps| steps.len() as u64).sum());
            let fault = self.run(&token, steps, (position, 1), None, check_stop)?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
        self.token(&planned, &token, BEFORE, &mut random, check_stop)
    }

    /// Checks a batch.
    fn batch(
        &self,
        batch: &BatchPlan,
        token: &BatchPlan,
        lender: &Executor,
        checked: &CheckedBatch,
        random: &mut Pcg32,
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Option<KernelFinding>> {
        let plan = &batch.plan;
        let shared: HashMap<LocalId, Buffer> =
            batch.shared(token).into_iter().map(|(here, there)| (here, lender.local(there).clone())).collect();
        let executor = Executor::with_locals(self.pipelines, plan, self.weights, &shared)?;
        let (made, tokens) = (Made { plan, executor }, (checked.position, checked.tokens));
        let mut rows = checked.rows(&(0..checked.tokens).map(|_| self.pick(random)).collect::<Vec<_>>());
        self.write(&made, &rows)?;
        let verified = batch.head.filter(|_| batch.outputs == Outputs::Verified);
        let accept = verified.map_or(plan.steps.len(), |head| head.sampling.accept);
        let mut steps = self.steps(plan);
        steps.iter_mut().for_each(|steps| steps.end = steps.end.min(accept));
        let fault = self.run(&made, steps, tokens, Some(random), check_stop)?;
        if fault.is_some() || verified.is_none() {
            return Ok(fault);
        }
        self.guess_all_but_last(&made, &mut rows)?;
        let verification = accept..plan.steps.len();
        self.run(&made, vec![verification], tokens, Some(random), check_stop)
    }

    /// Makes all drafts but the last the tokens that were sampled before them, and the last one another token: random
    /// drafts would nearly always be rejected.
    fn guess_all_but_last(&self, made: &Made<'_>, rows: &mut [RowHeader]) -> Result<()> {
        let (bytes, last) = (sampled_bytes(1), rows.len() - 1);
        let sampled = Fetch::new(made.executor.gpu(), bytes)?.read(made.executor.local(Plan::SAMPLED), 0, bytes)?;
        let sampled: Vec<u32> = bytemuck::pod_collect_to_vec(&sampled);
        let results: Vec<u32> = rows.iter().map(|row| row.result).collect();
        let vocab = self.planner.config.vocab as u32;
        for (index, (row, before)) in rows.iter_mut().skip(1).zip(results).enumerate() {
            let token = sampled[before as usize * Plan::SAMPLED_WORDS];
            if token < vocab {
                // Not a number from 2^31 on, which would stand for a word of the buffer.
                row.token = if index + 1 < last { token } else { (token + 1) % vocab };
            }
        }
        self.write(made, rows)
    }

    /// Checks the steps of a token after others, of finding the most likely next token, and of drawing one at random.
    fn token(
        &self,
        planned: &BatchPlan,
        made: &Made<'_>,
        position: usize,
        random: &mut Pcg32,
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Option<KernelFinding>> {
        self.write(made, &RowHeader::consecutive(position, &[self.pick(random)]))?;
        let fault = self.run(made, self.steps(made.plan), (position, 1), Some(random), check_stop)?;
        if fault.is_some() {
            return Ok(fault);
        }
        let draw = Sampling::draw(1.0, 40, 0.95, 0.02, random.next_u64());
        made.executor.gpu().write(made.executor.local(Plan::SAMPLING), 0, bytemuck::bytes_of(&draw))?;
        let choice = planned.end()..made.plan.steps.len();
        self.meter.expect(LoadStage::Check, choice.len() as u64);
        self.run(made, vec![choice], (position, 1), Some(random), check_stop)
    }

    /// Runs steps and compares some of their outputs, chosen with the random generator if there is one.
    fn run(
        &self,
        made: &Made<'_>,
        steps: Vec<Range<usize>>,
        tokens: (usize, usize),
        random: Option<&mut Pcg32>,
        check_stop: &mut StopCheck<'_>,
    ) -> Result<Option<KernelFinding>> {
        let Planner { weights, .. } = *self.planner;
        let mut row = |weight: &Weight, row: usize| row_of(&weights.table, weight, row);
        let proven = |step: &Step| {
            let variant = made.plan.variants[step.variant].clone();
            self.proven.contains(&(variant, made.plan.splits))
        };
        let compares = random.is_some();
        let compared = |step: &Step| compares && (self.proven.is_empty() || !proven(step));
        let seed = random.map_or(0, |random| random.next_u64());
        let mut checker = Checker::new(&made.executor, made.plan, &mut row, seed)?;
        for steps in steps {
            let mut counted = 0;
            let mut look = |_: &Step, samples: &[(Sample, f64)]| {
                self.looked.set(self.looked.get().with(samples));
                if counted < steps.len() {
                    counted += 1;
                    self.meter.add(LoadStage::Check, 1);
                }
                check_stop()
            };
            let ran = checker.run(steps.clone(), tokens, &compared, &mut look);
            self.meter.add(LoadStage::Check, (steps.len() - counted) as u64); // those that were not compared
            match ran {
                Ok(None) => {}
                Ok(Some(wrong)) => {
                    let place = wrong.to_string();
                    return Ok(Some(KernelFinding::new(wrong.kernel, KernelFault::Wrong, &place)));
                }
                Err(error) => return self.stuck(error, checker.running()).map(Some),
            }
        }
        Ok(None)
    }

    /// The kernel of the running step, if the GPU stopped responding during it; the error otherwise.
    fn stuck(&self, error: Error, running: Option<(&Step, Duration)>) -> Result<KernelFinding> {
        let gpu = self.planner.gpu;
        let ran = running.map_or(Duration::ZERO, |(_, ran)| ran);
        let stopped = match &error {
            Error::Endless { .. } => true,
            // An app may have destroyed its device, and does not tell.
            Error::DeviceLost { .. } => !gpu.is_closed() && (gpu.is_ours() || ran >= MIN_HANG),
            // Out of memory also loses work, but then the GPU still executes other work.
            Error::NoResult => !works(gpu, self.timeouts),
            _ => false,
        };
        match running.filter(|_| stopped) {
            Some((step, _)) => {
                let place = format!("at `{}`: {error}", step.label);
                Ok(KernelFinding::new(step.kernel, KernelFault::RunsForever, &place))
            }
            None => Err(error),
        }
    }

    /// The steps that are checked: those of [`Subject::layers`], and the head.
    fn steps(&self, plan: &Plan) -> Vec<Range<usize>> {
        self.layers(plan).into_iter().chain(once(plan.head..plan.steps.len())).collect()
    }

    /// Writes the batch of these rows.
    fn write(&self, made: &Made<'_>, rows: &[RowHeader]) -> Result<()> {
        let mut writer = BatchWriter::new(self.planner.config);
        let batch = writer.write(rows, made.plan.splits, 0);
        made.executor.gpu().write(made.executor.local(Plan::BATCH), 0, batch)
    }

    /// A random id of the vocabulary.
    fn pick(&self, random: &mut Pcg32) -> u32 {
        random.next_u32() % u32::try_from(self.planner.config.vocab).unwrap_or(u32::MAX).max(1)
    }

    /// The steps before the head that are checked: those before the layers, those of the first layer, and those of the
    /// first layer of experts.
    fn layers(&self, plan: &Plan) -> Vec<Range<usize>> {
        let experts = if self.planner.config.experts.is_some() { self.planner.config.leading_dense } else { 0 };
        let wanted = |step: usize| plan.steps[step].layer.is_none_or(|layer| layer == 0 || layer == experts);
        let steps: Vec<usize> = (0..plan.head).filter(|&step| wanted(step)).collect();
        steps.chunk_by(|a, b| a + 1 == *b).map(|run| run[0]..run[run.len() - 1] + 1).collect()
    }
}

/// The plan of a token that is checked, which has a small cache, and those of the batches.
fn checked_plans(
    (weights, config, cache): (&Arc<ModelWeights>, &Config, CacheShape),
    target: &Target,
    batches: &[CheckedBatch],
) -> Result<(BatchPlan, Vec<BatchPlan>)> {
    let most = batches.iter().map(CheckedBatch::end).max().unwrap_or(BEFORE);
    let mut token = plan_alone(weights, config, CacheShape { context: most + MORE, ..cache }, target)?;
    token.plan.local_mut(Plan::SAMPLED).bytes = sampled_bytes(1);
    let shape = |batch: &CheckedBatch| BatchShape::of(batch.capacity, batch.outputs, batch.position, cache.context);
    let batches = batches.iter().map(|batch| plan_batch(config, &token, target, shape(batch)));
    let batches = batches.collect::<Result<_>>()?;
    Ok((token, batches))
}

/// The memory in bytes that a check of batches and of a token needs besides the weights. The first token after a check
/// needs less.
pub(super) fn check_memory(
    model: (&Arc<ModelWeights>, &Config, CacheShape),
    target: &Target,
    batches: &[CheckedBatch],
) -> Result<u64> {
    let (token, batches) = checked_plans(model, target, batches)?;
    let mut memory = READ_BACK + token.plan.params_memory() + token.plan.locals.iter().map(|it| it.bytes).sum::<u64>();
    for batch in &batches {
        let shared: HashSet<LocalId> = batch.shared(&token).into_iter().map(|(here, _)| here).collect();
        let own = batch.plan.locals_by_id().filter(|(id, _)| !shared.contains(id));
        memory += batch.plan.params_memory() + own.map(|(_, local)| local.bytes).sum::<u64>();
    }
    Ok(memory)
}

/// The values of a row of a weight, as its file has them.
fn row_of(table: &WeightTable, weight: &Weight, row: usize) -> Result<Vec<f32>> {
    let (mut values, mut bytes) = (zeros(weight.shape[0], "checking kernels")?, Vec::new());
    WeightRows::of(table, weight)?.read(row..row + 1, &mut bytes)?;
    weight.quant.decode(&bytes, &mut values)?;
    Ok(values)
}
