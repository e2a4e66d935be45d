//! The heads' queries as attention over the latent cache wants them.

use super::matvec::{self, Feed, Input, MatvecProduct, columns_for, dot, seen, wide};
use super::reference::{RotatedQueries, Terms, Which, by_token};
use super::rope_query::{rotated, rotations};
use super::rounded::Epilogue;
use super::{Case, CaseBuilder, Kernel, expect_multiple, expect_shape};
use crate::error::Result;
use crate::plan::{Builder, Cost, Target, Tensor, Weight};
use crate::quant::Quant;
use crate::wgsl::{Source, source};

const OP: Source = source!("op/absorb_query.wgsl");

pub(super) const KERNEL: Kernel =
    Kernel { name: "absorb_query", op: OP, params: &[], matrices: &[], several: true, cases };

impl Builder {
    /// y {rank + rotary, heads}: the first values of q {nope + rotary, heads} times w {nope, rank, heads}, and
    /// behind them the rotary rest, rotated; for the heads of every token.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit together.
    pub fn absorb_query(&mut self, label: &str, w: &Weight, q: &Input, y: &Tensor) -> Result<()> {
        let [nope, rank, heads] = w.shape;
        let query = &q.tensor;
        let rotary = query.shape[0].saturating_sub(nope);
        let vectors = heads * self.tokens();
        let input = Input { tensor: Tensor { shape: [nope, vectors], ..*query }, ..q.clone() };
        let product = MatvecProduct {
            kernel: KERNEL.name,
            label,
            op: OP,
            roles: &[("w", w)],
            feed: Feed::Input(&input),
            epilogue: Epilogue::default(),
            rows: rank,
            layers: heads,
            together: 1,
            groups: w.groups(),
        };
        product.expect_input(nope, query.shape[1])?;
        expect_multiple(KERNEL.name, "q", nope, 2)?;
        expect_multiple(KERNEL.name, "q", rotary, 2)?;
        expect_shape(KERNEL.name, "y", y.shape[0], rank + rotary)?;
        expect_shape(KERNEL.name, "y", y.shape[1], vectors)?;
        let variant = product
            .variant(self)
            .constant("NOPE", "", nope)
            .constant("PAIRS", "p", rotary / 2)
            .constant("HEADS", "h", heads)
            .constant("Y_STRIDE", "y", y.stride)
            .file(source!("lib/rows.wgsl"));
        let variant = self.state_files(variant).file(source!("lib/rope.wgsl"));
        let mut bindings = product.bindings(self);
        bindings.extend([self.bound_state(), self.bound("query", query.buffer), self.bound("y", y.buffer)]);
        let cost = product.cost(y.bytes()) + Cost::products(w, heads, self.tokens());
        let grid = product.grid(self, product.blocks(self, rank) + 1);
        let terms = Terms::One { w: w.clone(), add: false };
        let tokens = self.tokens();
        let rotated = RotatedQueries { q: by_token(query, tokens), y: by_token(y, tokens), rotary };
        self.computes(KERNEL.name, (product.reference(self, terms, Which::InTurn, y), rotated));
        self.step(label, variant, bindings, &(), grid, cost)
    }
}

fn cases(target: Target) -> Result<Vec<Case>> {
    let shapes = matvec::in_turn(&[(3, 24, 8, 20, 1), (2, 192, 64, 36, 1), (3, 24, 8, 20, 4)]).into_iter();
    shapes
        .map(|(quant, (heads, nope, rotary, rank, tokens))| {
            let example = Example { heads, nope: columns_for(quant, nope), rotary, rank, tokens };
            case(target, quant, example)
        })
        .collect()
}

struct Example {
    heads: usize,
    nope: usize,
    rotary: usize,
    rank: usize,
    tokens: usize,
}

fn case(target: Target, quant: &'static Quant, example: Example) -> Result<Case> {
    let Example { heads, nope, rotary, rank, tokens } = example;
    let rotations: Vec<_> = (0..tokens as u32).flat_map(|token| rotations(1234 + token, rotary / 2)).collect();
    let mut case = CaseBuilder::for_tokens(target, rotary / 2, tokens);
    match tokens {
        1 => case.state(3, 1234, &rotations),
        _ => case.rotated_chunk(1234, tokens, &rotations),
    }
    let (w, ws) = case.weight("w", quant, [nope, rank, heads])?;
    let (q, qs) = case.input("q", [nope + rotary, heads * tokens]);
    let q = case.rounded_input(&q, "q", &qs);
    let y = case.plan.tensor("y", [rank + rotary, heads * tokens]);
    case.plan.absorb_query("absorb", &w, &q, &y)?;
    let (mut want, mut sizes) = (Vec::new(), Vec::new());
    for (head, query) in qs.chunks(nope + rotary).enumerate() {
        let seen = seen(&wide(&query[..nope]), nope, &[quant], target.arithmetic);
        let rows = (0..rank).map(|row| dot(&ws, w.shape, head % heads, row, &seen));
        rows.for_each(|(value, size)| {
            want.push(value);
            sizes.push(size);
        });
        let pairs = query[nope..].chunks(2).zip(&rotations[head / heads * rotary / 2..]);
        want.extend(pairs.flat_map(|(pair, &rotation)| rotated(pair[0], pair[1], rotation)));
        sizes.resize(want.len(), 1.0);
    }
    case.expect(&y, want, sizes, matvec::bound(target.arithmetic));
    Ok(case.finish(format!("{} {heads} heads, nope {nope}, rotary {rotary}, rank {rank}, {tokens} tokens", quant.name)))
}
