//! The plans of a pool's sessions on the device. Each is created on first use, and stays.
//!
//! Rows run in the smallest plan for their number, so that few rows do not take the grids of many. All plans share the
//! weights, the cache and the sampled values, and all but the single-row plan share their activations. If a plan needs
//! a larger buffer of activations than there is, that buffer is dropped together with the plans that use it, which are
//! created again when needed. So only the largest version of each buffer that a plan needs is kept.

use super::block::{BlockPlans, ReadyBlock};
use super::pacer::SubmissionPacer;
use crate::error::Result;
use crate::gpu::{Buffer, Prepared};
use crate::kernels::{Adjustment, Sampling};
use crate::model::{BatchPlan, BatchShape, CacheShape, DraftInputs, Head, Model, Outputs, SamplingPlan, sampled_bytes};
use crate::plan::{Executor, LocalId, PAGE, Plan, ScratchKey};
use crate::threads::StopCheck;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The buffers that all plans of a pool share.
pub struct SharedBuffers {
    /// The KV rows of all pages, layer by layer.
    pub caches: Vec<Buffer>,
    /// The lists of pages, each long enough for a session's context: that of the single-row plan, then one for each
    /// sequence, if there are several.
    pub lists: Buffer,
    /// The last values sampled for each sequence, then for each row of a verification: [`Plan::SAMPLED`].
    pub sampled: Buffer,
    /// The sampling parameters of each sequence.
    pub sampling: Buffer,
    /// The saved hidden states of each sequence, for a multi-token-prediction block.
    kept: Option<Buffer>,
}

impl SharedBuffers {
    /// These buffers by their ids in a plan of the model.
    fn of(&self, planned: &BatchPlan) -> HashMap<LocalId, Buffer> {
        let caches = planned.plan.caches().zip(self.caches.iter().cloned());
        caches.chain(self.states()).chain(planned.kept.zip(self.kept.clone())).collect()
    }

    /// The buffers that all plans have, by their ids.
    pub fn states(&self) -> [(LocalId, Buffer); 3] {
        let states = [(Plan::PAGES, &self.lists), (Plan::SAMPLED, &self.sampled), (Plan::SAMPLING, &self.sampling)];
        states.map(|(local, buffer)| (local, buffer.clone()))
    }
}

/// The plan of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanKey {
    /// The single-row plan.
    Alone,
    /// A plan of several rows.
    Shape(BatchShape),
}

impl PlanKey {
    /// The outputs of a plan of several rows.
    pub fn outputs(self) -> Option<Outputs> {
        if let Self::Shape(shape) = self { Some(shape.outputs) } else { None }
    }
}

/// The plans of a pool's sessions.
pub struct Plans {
    pub shared: SharedBuffers,
    /// The single-row plan.
    pub alone: Ready,
    /// The plans of the multi-token-prediction block.
    pub block: Option<BlockPlans>,
    others: HashMap<BatchShape, Ready>,
    /// The buffers of activations that the other plans share.
    scratch: HashMap<ScratchKey, Buffer>,
}

/// A plan on the device.
pub struct Ready {
    pub planned: Arc<BatchPlan>,
    pub executor: Executor,
    pub pacer: SubmissionPacer,
    /// Samplers for adjusted logits, and for those that a mask allows, each created on first use.
    adjusting: Option<Sampler>,
    masking: Option<Sampler>,
    /// Work that is recorded in advance, with the place of its results and whether it filters: see
    /// [`Submissions::prepare`](super::submissions::Submissions::prepare).
    pub prepared: Option<((usize, bool), Prepared)>,
}

/// Samples from adjusted or masked logits on the device.
pub struct Sampler {
    pub planned: SamplingPlan,
    pub executor: Executor,
    /// The most adjustments.
    most: usize,
}

impl Plans {
    /// Creates the plans for sessions with this cache, which together hold up to `pages` pages.
    pub fn new(model: &Model, cache: CacheShape, pages: usize, sequences: usize) -> Result<Self> {
        let (device, planned) = (model.gpu().capabilities(), model.plan(cache, BatchShape::ALONE)?);
        planned.check(device)?;
        let all = CacheShape { context: pages.saturating_mul(PAGE), ..cache };
        let layer_bytes = all.layer_bytes(model.config());
        all.check_bytes(layer_bytes, device)?;
        let mut plan = planned.plan.clone();
        let lists = if sequences == 1 { 1 } else { 1 + sequences };
        plan.local_mut(Plan::PAGES).bytes = 4 * lists as u64 * cache.context.div_ceil(PAGE) as u64;
        plan.local_mut(Plan::SAMPLED).bytes = sampled_bytes(sequences);
        plan.local_mut(Plan::SAMPLING).bytes = (size_of::<Sampling>() * sequences) as u64;
        planned.kept.into_iter().for_each(|kept| plan.local_mut(kept).bytes *= sequences as u64);
        plan.caches().collect::<Vec<_>>().into_iter().for_each(|cache| plan.local_mut(cache).bytes = layer_bytes);
        let executor = Executor::new(model.pipelines(), &plan, model.weights())?;
        let mut shared = SharedBuffers {
            caches: plan.caches().map(|cache| executor.local(cache).clone()).collect(),
            lists: executor.local(Plan::PAGES).clone(),
            sampled: executor.local(Plan::SAMPLED).clone(),
            sampling: executor.local(Plan::SAMPLING).clone(),
            kept: None,
        };
        shared.kept = planned.kept.map(|kept| executor.local(kept).clone());
        let block = match &shared.kept {
            Some(kept) => Some(BlockPlans::new(model, cache, (layer_bytes, sequences), &shared, kept.clone())?),
            None => None,
        };
        shared.caches.extend(block.as_ref().and_then(BlockPlans::cache));
        let alone = Ready::new(planned, executor);
        Ok(Self { shared, alone, block, others: HashMap::new(), scratch: HashMap::new() })
    }

    /// A plan. While kernels are compiled for it, `check_stop` is called repeatedly.
    pub fn get(&mut self, model: &Model, key: PlanKey, check_stop: &mut StopCheck<'_>) -> Result<&mut Ready> {
        let PlanKey::Shape(shape) = key else { return Ok(&mut self.alone) };
        let ready = match self.others.remove(&shape) {
            Some(known) => known,
            None => self.make(model, shape, check_stop)?,
        };
        Ok(self.others.entry(shape).or_insert(ready))
    }

    fn make(&mut self, model: &Model, shape: BatchShape, check_stop: &mut StopCheck<'_>) -> Result<Ready> {
        let planned = model.plan(self.alone.planned.cache, shape)?;
        model.pipelines().prepare_while(&planned.plan.variants, check_stop)?;
        self.drop_outgrown(&planned.plan);
        let mut locals = self.shared.of(&planned);
        locals.extend(self.known_scratch(&planned.plan));
        if let Some(last) = planned.last {
            let hidden = self.alone.planned.hidden.buffer.local()?;
            locals.insert(last, self.alone.executor.local(hidden).clone());
        }
        let executor = Executor::with_locals(model.pipelines(), &planned.plan, model.weights(), &locals)?;
        self.share_scratch(&planned.plan, &executor, planned.last);
        Ok(Ready::new(planned, executor))
    }

    /// The plan of the multi-token-prediction block for rows of a shape, if there is a block: one that computes rows
    /// from some inputs, or one that makes drafts.
    pub fn block_plan(
        &mut self,
        model: &Model,
        shape: BatchShape,
        inputs: Option<DraftInputs>,
    ) -> Result<Option<&ReadyBlock>> {
        let Some(block) = &self.block else { return Ok(None) };
        let known = (shape, inputs) == (BatchShape::ALONE, None) || block.rows.contains_key(&(shape, inputs));
        if !known {
            let planned = block.plan(model, self.alone.planned.cache, shape, inputs)?;
            self.drop_outgrown(&planned.plan);
            let Some(block) = &self.block else { return Ok(None) };
            let mut locals = block.locals(&planned, &self.shared);
            locals.extend(self.known_scratch(&planned.plan));
            let executor = Executor::with_locals(model.pipelines(), &planned.plan, model.weights(), &locals)?;
            self.share_scratch(&planned.plan, &executor, None);
            if let Some(block) = &mut self.block {
                block.rows.insert((shape, inputs), ReadyBlock { planned, executor });
            }
        }
        let Some(block) = &self.block else { return Ok(None) };
        Ok(block.rows.get(&(shape, inputs)).or(Some(&block.alone).filter(|_| inputs.is_none())))
    }

    /// The existing buffers of a plan's activations.
    fn known_scratch(&self, plan: &Plan) -> Vec<(LocalId, Buffer)> {
        plan.scratch().filter_map(|(index, key, _)| Some((index, self.scratch.get(&key)?.clone()))).collect()
    }

    /// Shares the buffers of a plan's activations with other plans, except for one.
    fn share_scratch(&mut self, plan: &Plan, executor: &Executor, but: Option<LocalId>) {
        for (index, key, _) in plan.scratch().filter(|(index, ..)| Some(*index) != but) {
            self.scratch.entry(key).or_insert_with(|| executor.local(index).clone());
        }
    }

    /// Drops buffers that are too small for a plan, and the plans that use them.
    fn drop_outgrown(&mut self, plan: &Plan) {
        let before = self.scratch.len();
        for (_, key, bytes) in plan.scratch() {
            if self.scratch.get(&key).is_some_and(|buffer| buffer.bytes() < bytes) {
                self.scratch.remove(&key);
            }
        }
        if self.scratch.len() < before {
            self.others.clear();
            self.block.iter_mut().for_each(|block| block.rows.clear());
        }
    }
}

impl Ready {
    fn new(planned: Arc<BatchPlan>, executor: Executor) -> Self {
        let pacer = SubmissionPacer::new(Duration::ZERO); // it gets a limit where submissions are divided
        Self { planned, executor, pacer, adjusting: None, masking: None, prepared: None }
    }

    /// The head of a plan that has one.
    pub fn head(&self) -> Result<&Head> {
        self.planned.head()
    }

    /// Prepares to adjust up to `most` logits, and to mask them if `masked`. After an error nothing has changed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory); any error from the device.
    pub fn sample_with(&mut self, model: &Model, most: usize, masked: bool) -> Result<()> {
        let known = if masked { &self.masking } else { &self.adjusting };
        if known.as_ref().is_some_and(|sampler| sampler.most >= most) {
            return Ok(());
        }
        let planned = model.plan_sampling(&self.planned, self.head()?, most, masked)?;
        let shared = planned.shared.iter().map(|(here, there)| (*here, self.executor.local(*there).clone())).collect();
        let executor = Executor::with_locals(model.pipelines(), &planned.plan, &[], &shared)?;
        let sampler = if masked { &mut self.masking } else { &mut self.adjusting };
        *sampler = Some(Sampler { planned, executor, most });
        Ok(())
    }

    /// The sampler for these adjustments and this mask, which are written to the device. It has to be [large
    /// enough](Ready::sample_with).
    pub fn sampler(&self, adjustments: &[Adjustment], mask: Option<&[u32]>) -> Result<Option<&Sampler>> {
        let sampler = if mask.is_some() { &self.masking } else { &self.adjusting };
        if let Some(Sampler { planned, executor, .. }) = sampler {
            if !adjustments.is_empty() {
                let listed = executor.local(planned.adjustments);
                executor.gpu().write(listed, 0, bytemuck::cast_slice(adjustments))?;
            }
            if let Some((local, mask)) = planned.mask.zip(mask) {
                executor.gpu().write(executor.local(local), 0, bytemuck::cast_slice(mask))?;
            }
        }
        Ok(sampler.as_ref())
    }
}
