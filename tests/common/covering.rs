//! Which of the kernels' cases run. Running all combinations of kernels, formats, shapes and modes takes a quarter of
//! an hour on two cores, most of it spent compiling shaders. A covering set takes a minute and includes every kernel,
//! every format and every WGSL file; one of all pairs also has every kernel in every format.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, OnceLock, PoisonError};
use wglm_engine::quant::QUANTS;
use wglm_engine::reference::Case;

/// How many of the kernels' cases are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Each kernel in this many formats, and each format in as many kernels: by `./test`.
    Times(usize),
    /// Each kernel in each format: by `./test --all`, as in CI.
    Pairs,
    /// The whole product: by `./test --product`.
    Product,
}

impl Extent {
    /// The covering set of `./test`.
    pub const FEW: Self = Self::Times(2);

    /// The one that the variable `WGLM_TESTS` asks for.
    pub fn asked() -> Self {
        match std::env::var("WGLM_TESTS").as_deref() {
            Ok("all") => Self::Pairs,
            Ok("product") => Self::Product,
            _ => Self::FEW,
        }
    }

    /// How many of a kernel's `count` formats have to be covered, or of a format's kernels.
    pub fn needed(self, count: usize) -> usize {
        match self {
            Self::Times(times) => count.min(times),
            Self::Pairs | Self::Product => count,
        }
    }
}

/// What a case contributes to a covering set.
#[derive(Debug, Clone)]
pub struct Traits {
    /// The kernel.
    pub kernel: &'static str,
    /// The formats of its matrices, and whether their values are multiplied as bytes.
    pub formats: Vec<(&'static str, bool)>,
    /// The WGSL files of its shaders except those of formats. Teams, arithmetics and types of cache differ in these.
    pub files: Vec<&'static str>,
    /// The length of its shaders: compiling them takes nearly all of a case's time.
    pub cost: usize,
}

impl Traits {
    /// The traits of a kernel's case.
    pub fn of(kernel: &'static str, case: &Case) -> Self {
        let joined = case.formats();
        let bytes = case.plan.variants.iter().any(|variant| variant.label.contains(".i8."));
        let names = QUANTS.iter().map(|quant| quant.name).filter(|name| joined.split('+').any(|it| it == *name));
        let parts = case.plan.variants.iter().flat_map(|variant| &variant.parts);
        let files: BTreeSet<&str> = parts.map(|part| part.source.path).filter(|path| !is_format(path)).collect();
        let cost = case.plan.variants.iter().map(|variant| variant.length()).sum();
        Self { kernel, formats: names.map(|name| (name, bytes)).collect(), files: files.into_iter().collect(), cost }
    }
}

fn is_format(path: &str) -> bool {
    let name = path.strip_prefix("quant/").and_then(|name| name.strip_suffix(".wgsl"));
    name.is_some_and(|name| QUANTS.iter().any(|quant| quant.name == name))
}

/// A format, and whether its values are multiplied as bytes.
pub type Format<'a> = (&'a str, bool);

/// What a covering set still lacks.
struct Lacks<'a> {
    /// The files of each kernel.
    files: HashSet<(&'a str, &'a str)>,
    /// How many more formats of each kernel, and kernels of each format, are needed.
    kernels: HashMap<&'a str, usize>,
    formats: HashMap<Format<'a>, usize>,
    /// The formats of each kernel that are in the set already.
    met: HashSet<(&'a str, Format<'a>)>,
}

impl<'a> Lacks<'a> {
    /// What a set without any case lacks.
    fn all(cases: &'a [Traits], extent: Extent) -> Self {
        let (mut of_kernels, mut of_formats) = (BTreeMap::<_, BTreeSet<_>>::new(), BTreeMap::<_, BTreeSet<_>>::new());
        for (kernel, format) in cases.iter().flat_map(pairs) {
            of_kernels.entry(kernel).or_default().insert(format);
            of_formats.entry(format).or_default().insert(kernel);
        }
        Self {
            files: cases.iter().flat_map(files).collect(),
            kernels: of_kernels.into_iter().map(|(name, formats)| (name, extent.needed(formats.len()))).collect(),
            formats: of_formats.into_iter().map(|(name, kernels)| (name, extent.needed(kernels.len()))).collect(),
            met: HashSet::new(),
        }
    }

    /// How much of what is lacking a case adds.
    fn gain(&self, case: &'a Traits) -> usize {
        let lacks = |left: Option<&usize>| usize::from(left.is_some_and(|left| *left > 0));
        let of_pair = |(kernel, format)| lacks(self.kernels.get(kernel)) + lacks(self.formats.get(&format));
        let of_formats: usize = pairs(case).filter(|pair| !self.met.contains(pair)).map(of_pair).sum();
        of_formats + files(case).filter(|file| self.files.contains(file)).count()
    }

    fn take(&mut self, case: &'a Traits) {
        files(case).for_each(|file| _ = self.files.remove(&file));
        for (kernel, format) in pairs(case).filter(|pair| self.met.insert(*pair)) {
            [self.kernels.get_mut(kernel), self.formats.get_mut(&format)]
                .into_iter()
                .flatten()
                .for_each(|left| *left = left.saturating_sub(1));
        }
    }
}

fn pairs(case: &Traits) -> impl Iterator<Item = (&str, Format<'_>)> {
    case.formats.iter().map(|format| (case.kernel, *format))
}

fn files(case: &Traits) -> impl Iterator<Item = (&str, &str)> {
    case.files.iter().map(|file| (case.kernel, *file))
}

/// The indices of a set of cases in which every kernel has each of its files, and as many of its formats, and every
/// format of its kernels, as the extent asks for. In each step the rule adds the case that adds most for the length of
/// its shaders; of equals, the first.
pub fn covering(cases: &[Traits], extent: Extent) -> BTreeSet<usize> {
    let (mut lacks, mut chosen) = (Lacks::all(cases, extent), BTreeSet::new());
    let worth = |gain: usize, case: &Traits| gain as f64 / case.cost.max(1) as f64;
    loop {
        let mut best: Option<(f64, usize)> = None;
        for (index, case) in cases.iter().enumerate() {
            let worth = worth(lacks.gain(case), case);
            if worth > best.map_or(0.0, |best| best.0) {
                best = Some((worth, index));
            }
        }
        let Some((_, index)) = best else { return chosen };
        lacks.take(&cases[index]);
        chosen.insert(index);
    }
}

/// Gives the shaders of a case the present text of their files, so that a change in a WGSL file can be tested without a
/// build.
pub fn refresh(case: &mut Case) {
    for part in case.plan.variants.iter_mut().flat_map(|variant| &mut variant.parts) {
        part.source.text = on_disk(part.source.path);
    }
}

/// The text of a file below `wgsl/`.
fn on_disk(path: &'static str) -> &'static str {
    static READ: OnceLock<Mutex<HashMap<&str, &str>>> = OnceLock::new();
    let mut read = READ.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    read.entry(path).or_insert_with(|| {
        let file = format!("{}/engine/wgsl/{path}", env!("CARGO_MANIFEST_DIR"));
        String::leak(std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}")))
    })
}
