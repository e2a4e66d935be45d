//! The questions for a model on a device, and their candidates.

use super::bench::GpuBench;
use super::question::{Edit, Question, Workload};
use super::search::Bench;
use crate::error::Result;
use crate::gpu::{AdapterReport, Matrices};
use crate::model::{FEW_TOKENS, PromptOptions, usual_arithmetic};
use crate::plan::{Choices, Grouping, ProductTile, RowRange, SplitsChoice, StepChoice, Target, Team, Tiling};
use crate::quant::Arithmetic;

/// The fractions of the time for the steps of a token, of a few rows, of prompts, and for everything else.
const TOKEN: f64 = 0.4;
const FEW: f64 = 0.25;
const PROMPTS: f64 = 0.2;
const SWITCHES: f64 = 0.15;

/// The fraction of a few rows' time for the splits of one class.
const SPLITS: f64 = 0.1;

/// Numbers of rows whose steps have the same tilings, besides a single row.
pub const FEW_CLASSES: [RowRange; 3] = [RowRange::new(2, 3), RowRange::new(4, 7), RowRange::new(8, FEW_TOKENS)];
/// Numbers of rows whose products have the same tiles.
const TILE_CLASSES: [RowRange; 2] = [RowRange::new(FEW_TOKENS + 1, 128), RowRange::new(129, PromptOptions::MAX_CHUNK)];
/// Rows that fill half of their plan's capacity, like most messages of a conversation. Choices made only for full plans
/// slowed them down by 6 % on an H100.
const HALF_FULL: usize = 64;

/// A step that takes less than this fraction of the time is left out: no gain there would be measurable.
const SMALL: f64 = 0.01;

/// Tilings for a single row, first those that are best for some step on some GPU: lanes, rows of a team, workgroup.
const GOOD: [[usize; 3]; 12] = [
    [32, 1, 256],
    [32, 1, 512],
    [8, 1, 128],
    [16, 1, 128],
    [32, 4, 64],
    [64, 1, 64],
    [32, 2, 256],
    [8, 1, 256],
    [64, 1, 1024],
    [16, 2, 256],
    [8, 4, 64],
    [32, 4, 256],
];
/// The same for several rows.
const GOOD_FOR_SEVERAL: [[usize; 3]; 9] = [
    [32, 2, 512],
    [8, 2, 256],
    [16, 2, 256],
    [32, 4, 512],
    [8, 4, 128],
    [8, 2, 128],
    [32, 1, 256],
    [32, 2, 1024],
    [32, 4, 64],
];
/// Tilings whose lanes read activations directly, first that of llama.cpp's Metal kernels, for either kind of format.
/// Larger workgroups share nothing then. For integer products only their numbers matter.
const GOOD_DIRECT: [[usize; 3]; 7] =
    [[32, 4, 64], [32, 2, 64], [32, 1, 64], [16, 4, 64], [8, 4, 64], [32, 2, 256], [16, 2, 128]];
/// Groupings besides the usual one.
const GROUPINGS: [Grouping; 4] = [
    Grouping { from: 5, slots: 8, rows: 8 },  // in smaller batches
    Grouping { from: 9, slots: 4, rows: 8 },  // fewer slots of an expert
    Grouping { from: 17, slots: 8, rows: 8 }, // in larger batches only
    Grouping::OFF,
];
/// Tiles of cooperative matrices: subgroups down and across, matrices of vectors and of rows.
const TILES: [[usize; 4]; 20] = [
    [1, 4, 4, 2],
    [4, 2, 2, 4],
    [2, 2, 2, 4],
    [2, 2, 4, 2],
    [2, 4, 2, 2],
    [2, 2, 2, 2],
    [1, 4, 2, 2],
    [2, 2, 4, 4],
    [1, 2, 4, 4],
    [1, 4, 4, 4],
    [4, 2, 2, 2],
    [2, 4, 2, 4],
    [1, 2, 2, 2],
    [1, 4, 3, 2],
    [1, 2, 3, 4],
    [1, 2, 2, 4],
    [1, 4, 1, 2],
    [1, 2, 1, 2],
    [1, 8, 4, 2],
    [4, 4, 2, 2],
];

/// All questions, in the order in which they are asked: first choices that others depend on, then steps by their share
/// of the time, then how prompts are cut.
pub(super) fn questions(bench: &mut GpuBench<'_>, about: &About<'_>) -> Result<Vec<Question>> {
    let start = bench.start();
    let mut questions = about.switches(&start);
    let mut steps = about.splits_of_few();
    steps.extend(about.tilings(bench, &start)?);
    steps.extend(about.tiles(bench, &start)?);
    steps.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    questions.extend(steps);
    questions.extend(about.parts(&start));
    Ok(questions)
}

/// The data that candidates depend on.
pub(super) struct About<'a> {
    pub target: &'a Target,
    pub adapter: &'a AdapterReport,
    pub prompt: PromptOptions,
    /// Tokens in a deep cache.
    pub deep: usize,
    /// Tokens of a long prompt.
    pub long: usize,
    /// The total seconds.
    pub budget: f64,
}

impl About<'_> {
    /// Whether there is time to measure the steps' shares, for which kernels may have to be compiled.
    fn has_time(&self, bench: &GpuBench<'_>) -> bool {
        bench.elapsed() < 0.05 * self.budget
    }

    fn tokens(&self) -> Vec<Workload> {
        let deep = (self.deep > 0).then_some(Workload::Token { depth: self.deep });
        [Workload::Token { depth: 0 }].into_iter().chain(deep).collect()
    }

    /// The row capacities of plans within a range, as work.
    fn batches(&self, range: RowRange) -> Vec<Workload> {
        let capacities = self.prompt.capacities().filter(|rows| *rows > 1 && range.contains(*rows) && *rows <= 512);
        capacities.map(|rows| Workload::Rows { rows, depth: 0 }).collect()
    }

    /// Arithmetic, matrices, and splits of the cache.
    fn switches(&self, start: &Choices) -> Vec<Question> {
        let mut questions = Vec::new();
        let mut ask = |name: &str, works: Vec<Workload>, candidates: Vec<Edit>, least: f64| {
            if !works.is_empty() && !candidates.is_empty() {
                questions.push(Question { name: name.to_owned(), works, candidates, weight: 0.0, least });
            }
        };
        let Target { arithmetic, matrices, .. } = *self.target;
        let few = self.batches(RowRange::new(4, 4));
        if start.arithmetic.is_none() && arithmetic == usual_arithmetic(self.adapter) {
            // Integer products are less exact than f32, so they need a larger gain.
            let (other, least) = match arithmetic {
                Arithmetic::Int => (Arithmetic::Float, 0.0),
                Arithmetic::Float => (Arithmetic::Int, 0.05),
            };
            ask(
                "arithmetic",
                [vec![Workload::Token { depth: 0 }], few.clone()].concat(),
                vec![Edit::Arithmetic(other)],
                least,
            );
        }
        if matrices != Matrices::None {
            ask("matrices for few rows", [self.tokens(), few].concat(), vec![Edit::FewWithoutMatrices], 0.0);
            let works = self.batches(RowRange::new(FEW_TOKENS + 1, 512));
            ask("matrices for prompts", works, vec![Edit::PromptsWithoutMatrices], 0.0);
        }
        if self.target.fusions.route {
            let works = [vec![Workload::Token { depth: 0 }], self.batches(RowRange::new(4, 4))].concat();
            ask("selection of experts", works, vec![Edit::RouteApart(!self.target.routes_apart())], 0.0);
        }
        if start.grouping.is_none() && self.target.team == Team::Subgroup && arithmetic == Arithmetic::Int {
            let works = self.batches(RowRange::new(8, FEW_TOKENS));
            ask("vectors that share decoded weights", works, GROUPINGS.map(Edit::Grouping).to_vec(), 0.0);
        }
        ask("splits of the cache, 1 row", self.tokens(), splits(RowRange::new(1, 1)), 0.0);
        let each = SWITCHES / questions.len().max(1) as f64;
        questions.iter_mut().for_each(|question| question.weight = each);
        questions
    }

    /// Splits of the cache for a few rows, which matter most in a deep cache.
    fn splits_of_few(&self) -> Vec<Question> {
        let of_class = |range: RowRange| {
            let shallow = self.batches(range);
            let deep = shallow.first().filter(|_| self.deep > 0).map(|work| work.at(self.deep));
            let (name, candidates) = (format!("splits of the cache, {range} rows"), splits(range));
            let (works, weight) = (shallow.iter().copied().chain(deep).collect(), FEW * SPLITS);
            Question { name, works, candidates, weight, least: 0.0 }
        };
        FEW_CLASSES.into_iter().map(of_class).filter(|question| !question.works.is_empty()).collect()
    }

    /// Tilings of products, first those of a single row.
    fn tilings(&self, bench: &mut GpuBench<'_>, start: &Choices) -> Result<Vec<Question>> {
        if self.target.team == Team::Workgroup {
            return Ok(Vec::new());
        }
        let mut questions = Vec::new();
        let alone = vec![Workload::Token { depth: 0 }];
        let classes = [(RowRange::new(1, 1), alone, TOKEN)].into_iter();
        let several = FEW_CLASSES.map(|range| (range, self.batches(range), FEW / FEW_CLASSES.len() as f64));
        for (rows, works, weight) in classes.chain(several) {
            let Some(first) = works.first() else { continue };
            let name = if rows.to == 1 { "1 row".to_owned() } else { format!("{rows} rows") };
            let shares = bench.shares(start, *first, self.has_time(bench))?;
            for (step, share) in shares.into_iter().filter(|(_, share)| *share >= SMALL) {
                let edit = |choice| Edit::Tiling(StepChoice { step: step.clone(), rows, choice });
                let candidates = tiling_candidates(self.target, rows).into_iter().map(edit).collect();
                let (name, works) = (format!("{step}, {name}"), works.clone());
                questions.push(Question { name, works, candidates, weight: weight * share, least: 0.0 });
            }
        }
        with_effect(bench, start, questions)
    }

    /// Tiles of the products of prompts.
    fn tiles(&self, bench: &mut GpuBench<'_>, start: &Choices) -> Result<Vec<Question>> {
        let tiles = tile_candidates(self.target);
        let mut questions = Vec::new();
        for rows in TILE_CLASSES {
            let mut works = self.batches(rows);
            let Some(first) = works.first().copied() else { continue };
            if works.contains(&Workload::Rows { rows: 2 * HALF_FULL, depth: 0 }) {
                works.insert(0, Workload::Rows { rows: HALF_FULL, depth: 0 });
            }
            let shares = bench.shares(start, first, self.has_time(bench))?;
            for (step, share) in shares.into_iter().filter(|(_, share)| *share >= SMALL) {
                let edit = |choice: &ProductTile| Edit::Tile(StepChoice { step: step.clone(), rows, choice: *choice });
                let (name, weight) = (format!("{step}, {rows} rows"), share * PROMPTS / TILE_CLASSES.len() as f64);
                let candidates = tiles.iter().map(edit).collect();
                questions.push(Question { name, works: works.clone(), candidates, weight, least: 0.0 });
            }
        }
        with_effect(bench, start, questions)
    }

    /// How prompts are cut: the maximum number of rows for the steps of few rows, the minimum for expanded keys and
    /// values, and the number of tokens in a chunk.
    fn parts(&self, start: &Choices) -> Vec<Question> {
        let mut questions = Vec::new();
        let mut ask = |name: &str, works: Vec<Workload>, candidates: Vec<Edit>| {
            let (name, weight, least) = (name.to_owned(), SWITCHES / 2.0, 0.0);
            questions.push(Question { name, works, candidates, weight, least });
        };
        if start.few_rows.is_none() {
            let works = self.batches(RowRange::new(8, FEW_TOKENS));
            ask("rows from which prompts use tiles", works, [16, 8, 4].map(Edit::FewRows).to_vec());
        }
        if start.expanded_rows.is_none() && self.deep > 0 {
            let works = self.batches(RowRange::new(256, 512)).into_iter().map(|work| work.at(self.deep)).collect();
            ask("rows from which keys and values are expanded", works, [512, 256].map(Edit::ExpandedRows).to_vec());
        }
        let usual = PromptOptions::default().on(self.adapter).chunk;
        if start.chunk.is_none() && self.prompt.chunk == usual && self.long > 512 {
            let other = |chunk: &usize| *chunk <= self.long && Some(*chunk) != usual;
            let chunks = [1024, 2048, 512, 4096, 256].into_iter().filter(other);
            ask(
                "tokens of a prompt's chunk",
                vec![Workload::Prompt { tokens: self.long }],
                chunks.map(Edit::Chunk).collect(),
            );
        }
        questions
    }
}

/// The tilings to try for a target's products of some rows.
pub fn tiling_candidates(target: &Target, rows: RowRange) -> Vec<Tiling> {
    let staged = |[lanes, rows, workgroup]: [usize; 3]| Tiling { lanes, rows, workgroup, columns: 1, direct: false };
    let direct = |divided: &[usize; 3]| Tiling { direct: true, ..staged(*divided) };
    let good = if rows.to == 1 { GOOD.as_slice() } else { &GOOD_FOR_SEVERAL };
    let mut tilings: Vec<Tiling> = Vec::new();
    for index in 0..good.len().max(GOOD_DIRECT.len()) {
        tilings.extend(good.get(index).copied().map(staged));
        tilings.extend(GOOD_DIRECT.get(index).map(direct));
    }
    if rows.to > 1 {
        let columns = |lanes| [4, 2].map(|columns| Tiling { columns, ..staged([lanes, 1, 256]) });
        tilings.extend([16, 8, 4].into_iter().flat_map(columns));
    }
    for lanes in [32, 16, 8, 64, 4, 128] {
        for rows in [1, 2, 4] {
            tilings.extend([256, 128, 512, 64, 1024].map(|workgroup| staged([lanes, rows, workgroup])));
        }
    }
    let Target { subgroup, wide, invocations, .. } = *target;
    let widest = if wide { 128 } else { subgroup };
    let sizes = Target::MIN_WORKGROUP..=invocations;
    let can = |it: &Tiling| sizes.contains(&it.workgroup) && it.lanes <= it.workgroup && it.lanes <= widest;
    tilings.retain(|tiling| can(tiling) && (tiling.lanes <= subgroup || tiling.lanes >= Target::WIDE));
    tilings
}

/// The tiles to try for a target's products of many rows.
pub fn tile_candidates(target: &Target) -> Vec<ProductTile> {
    let registers = |vectors| [4, 2].map(|rows| ProductTile::Registers { vectors, rows });
    if target.matrices == Matrices::None {
        return [64, 32, 16].into_iter().flat_map(registers).collect();
    }
    let large = |[down, across, ..]: &[usize; 4]| 32 * down * across >= Target::MIN_WORKGROUP;
    let tile = |[down, across, lefts, rights]: [usize; 4]| {
        [2, 1].map(|groups| ProductTile::Matrices { down, across, lefts, rights, groups })
    };
    TILES.into_iter().filter(large).flat_map(tile).collect()
}

/// The numbers of splits into which attention of `rows` rows may divide the cache.
fn splits(rows: RowRange) -> Vec<Edit> {
    let choice = |splits| Edit::Splits(SplitsChoice { rows, splits });
    [32, 16, 64, 8, 48, 24, 4].map(choice).to_vec()
}

/// The questions whose first candidates include one that changes the steps of some work; the others are about steps
/// without that choice.
fn with_effect(bench: &mut GpuBench<'_>, start: &Choices, questions: Vec<Question>) -> Result<Vec<Question>> {
    let mut kept = Vec::new();
    for question in questions {
        let mut differs = false;
        for work in &question.works {
            let usual = bench.identity(start, *work)?;
            let mut first = question.candidates.iter().take(3);
            differs = first.any(|edit| bench.identity(&edit.of(start), *work).is_ok_and(|other| other != usual));
            if differs {
                break;
            }
        }
        if differs {
            kept.push(question);
        }
    }
    Ok(kept)
}
