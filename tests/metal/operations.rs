//! The operations per weight in the inner loops of products, by format and kernel, counted in what clang makes of the
//! Metal source, and stored as a table in docs/metal.md.
//!
//! After an intended change, `OPERATIONS_UPDATE=1 cargo test --test metal operations` updates the table.

use crate::clang::Workshop;
use crate::code::{Function, Operations};
use crate::emit::Shader;
use crate::shape::Shape;
use crate::translate::Text;
use crate::variants::{apple, header};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use wglm::{CacheShape, CacheType, Config};
use wglm_engine::model::plan_token;
use wglm_engine::quant::{GROUP, Q2_K, Q3_K, Q4_0, Q4_K, Q5_K, Q6_K, QUANTS, Quant};
use wglm_engine::shader::{Constant, SourcePart, Variant};
use wglm_engine::wgsl::Source;

/// The marks at the beginning and the end of the table.
const MARKS: (&str, &str) = ("<!-- operations: begin -->\n", "<!-- operations: end -->\n");

/// The kernels of a token that multiply weights one by one, and the matrices of which one iteration takes a group for
/// each row. The first is counted for every format, the others for the most frequent formats of experts.
const KERNELS: [(&str, usize); 3] = [("mul_mv", 1), ("moe_gate_up", 2), ("moe_down", 1)];
const OF_EXPERTS: [Quant; 6] = [Q4_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K];

/// The entry that decodes a group to f16, as `mul_mm_matrix` and similar kernels do for each tile.
const DECODING: &str = "w_halves";
const DECODE: &str = "var<storage, read_write> decoded: array<array<vec4<f16>, 8>>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) g: u32) {
    decoded[g] = w_halves(w_raw(g));
}
";

/// A row of the table: the code of a shader, and the weights that it is counted for.
struct Row {
    quant: &'static Quant,
    kernel: &'static str,
    text: Text,
    weights: usize,
}

/// A token's products with all matrices in a format.
fn products(quant: &'static Quant) -> Vec<Row> {
    let dir = TempDir::new().unwrap();
    let file = header(&dir, &Shape { ty: Some(quant), ..Shape::glm(2) });
    let cache = CacheShape { context: 8192, ty: CacheType::F16 };
    let plan = plan_token(&file, &Config::read(&file).unwrap(), cache, &apple()).unwrap().plan;
    let row = |(kernel, matrices): (&'static str, usize)| {
        let of_kernel = |v: &&Variant| v.label.starts_with(&format!("{kernel}.{}.", quant.name));
        // Of several products the one with the longest rows, whose loop is not unrolled.
        let variant = plan.variants.iter().filter(of_kernel).max_by_key(|v| constant(v, "_GROUPS")).unwrap();
        let text = Text::of(&Shader::of(variant).unwrap()).unwrap();
        Row { quant, kernel, text, weights: GROUP * matrices * constant(variant, "ROWS") }
    };
    let kernels = if OF_EXPERTS.iter().any(|known| known.id == quant.id) { &KERNELS[..] } else { &KERNELS[..1] };
    kernels.iter().copied().map(row).collect()
}

/// The first constant of a variant's header whose name has this ending.
fn constant(variant: &Variant, name: &str) -> usize {
    let found = variant.constants.iter().find(|(known, _)| known.ends_with(name));
    match found {
        Some((_, Constant::U32(value))) => *value as usize,
        other => panic!("{}: {name} is {other:?}", variant.label),
    }
}

fn decoding(quant: &'static Quant) -> Row {
    let library = |path, text| Source { path, text };
    let mut files = vec![
        library("lib/word_selected.wgsl", include_str!("../../engine/wgsl/lib/word_selected.wgsl")),
        library("lib/bits.wgsl", include_str!("../../engine/wgsl/lib/bits.wgsl")),
        library("lib/halves.wgsl", include_str!("../../engine/wgsl/lib/halves.wgsl")),
    ];
    files.extend(quant.table_files().into_iter().chain(quant.half_files()));
    files.push(library("test", DECODE));
    let first = quant.grid().map_or(0, |grid| grid.first);
    let variant = Variant {
        label: format!("{DECODING}.{}", quant.name),
        enables: vec!["f16"],
        constants: vec![("w_GRID".to_owned(), Constant::U32(first as u32))],
        parts: files.into_iter().map(|source| SourcePart { source, role: "w" }).collect(),
    };
    let text = Text::of(&Shader::of(&variant).unwrap()).unwrap();
    Row { quant, kernel: DECODING, text, weights: GROUP }
}

/// The operations of each row's kernel.
fn counted(shop: &Workshop, rows: &[Row]) -> Vec<Operations> {
    let texts: Vec<Text> = rows.iter().map(|row| row.text.clone()).collect();
    let code = shop.optimised("operations", &texts).unwrap_or_else(|e| panic!("{e}"));
    let count = |(index, row): (usize, &Row)| {
        let name = format!("kernel_{index}5main_");
        let function = Function::find(&code, &name).unwrap();
        let counted = if row.kernel == DECODING { function.whole() } else { function.busiest_loop() };
        let counted = counted.unwrap_or_else(|e| panic!("{}: {e}", row.text.label));
        let turns = counted.products as f64 / row.weights as f64;
        let product = row.kernel != DECODING;
        // In addition to one for each weight there are those for scales, and two for each activation with a norm, which
        // rows share. If the loop were unrolled, there would be twice as many.
        assert!(!product || (1.0..2.0).contains(&turns), "{}: {turns} products a weight in a turn", row.text.label);
        counted
    };
    rows.iter().enumerate().map(count).collect()
}

/// A line of the table.
fn line(row: &Row, counted: &Operations) -> String {
    let each = |count: usize| format!("{:.2}", count as f64 / row.weights as f64);
    let counts = [
        counted.conversions,
        counted.shifts,
        counted.fields,
        counted.multiplications,
        counted.slow(),
        counted.all(),
        counted.loads,
    ];
    format!("| {} | {} | {} |\n", row.quant.name, row.kernel, counts.map(each).join(" | "))
}

/// The compiler whose counts are in the table, which CI uses; others optimise slightly differently.
const COUNTED_WITH: &str = "version 19.";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metal.md")
}

#[test]
fn operations_per_weight_are_those_of_the_table() {
    let Some(shop) = Workshop::open() else { return };
    let rows: Vec<Row> = QUANTS.iter().flat_map(|q| products(q).into_iter().chain([decoding(q)])).collect();
    let counted = counted(&shop, &rows);
    let lines: String = rows.iter().zip(&counted).map(|(row, counted)| line(row, counted)).collect();
    let table = format!(
        "| format | kernel | conversions | shifts | bit fields | multiplications of integers | these four | all | loads |\n\
         |---|---|---|---|---|---|---|---|---|\n{lines}"
    );
    let text = std::fs::read_to_string(page()).unwrap();
    let (before, rest) = text.split_once(MARKS.0).unwrap();
    let (kept, after) = rest.split_once(MARKS.1).unwrap();
    if std::env::var_os("OPERATIONS_UPDATE").is_some() {
        std::fs::write(page(), format!("{before}{}{table}{}{after}", MARKS.0, MARKS.1)).unwrap();
        return;
    }
    if !shop.version().contains(COUNTED_WITH) {
        println!(
            "the table is not compared: it was counted with clang of {COUNTED_WITH}, and this is {}",
            shop.version()
        );
        return;
    }
    assert_eq!(kept, table, "counted with {}", shop.version());
}
