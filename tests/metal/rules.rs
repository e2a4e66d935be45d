//! What Metal, or wgpu's translation to it, requires of a shader beyond WGSL.

use crate::emit::{Checks, LANGUAGES, Shader, USUAL};
use crate::variants;
use naga::proc::Layouter;
use naga::valid::FunctionInfo;
use naga::{
    AddressSpace, BinaryOperator, Block, Expression, Function, Handle, Literal, RelationalFunction, ScalarKind,
    Statement, Type, TypeInner,
};
use std::time::Instant;
use wglm_engine::instruments::{FEW_CLASSES, tile_candidates, tiling_candidates};
use wglm_engine::plan::{ALIGNMENT, Plan, ProductTile, RowRange, Tiling};
use wglm_engine::shader::{Access, Constant, Variant};

/// The most storage buffers of a kernel that wgpu reports for Metal, and the most buffers altogether, with parameters
/// and sizes.
const STORAGE_BUFFERS: usize = 29;
const BUFFERS: usize = 31;
/// The bytes of workgroup memory, with each array padded to a multiple of 16.
const WORKGROUP_BYTES: u32 = 32 << 10;
/// The invocations of a simdgroup.
const SUBGROUP: u32 = 32;
/// The bits of the smallest f32 that is not finite.
const INFINITY: u32 = 0x7f80_0000;
/// Apple's compiler assumes that there are no infinities and no NaNs, so source that uses them may change its meaning.
const FORBIDDEN: [&str; 8] = ["INFINITY", "NAN", "HUGE_VAL", "isnan", "isinf", "isfinite", "isnormal", "isordered"];

impl Shader {
    /// Whether it multiplies matrices of a size that Metal lacks. Such kernels are for other adapters.
    pub fn foreign(&self) -> bool {
        !self.foreign_matrices().is_empty()
    }

    fn foreign_matrices(&self) -> Vec<String> {
        let size = |ty: &TypeInner| match *ty {
            TypeInner::CooperativeMatrix { columns, rows, .. } => Some((columns as u32, rows as u32)),
            _ => None,
        };
        let sizes = self.module.types.iter().filter_map(|(_, ty)| size(&ty.inner));
        let foreign = sizes.filter(|size| *size != (8, 8));
        foreign.map(|(columns, rows)| format!("a matrix of {columns} x {rows}: Metal has 8 x 8")).collect()
    }

    /// All violations of the rules.
    fn complaints(&self) -> Vec<String> {
        let rules = [
            Self::foreign_matrices,
            Self::limits,
            Self::layout,
            Self::finite_constants,
            Self::finite_functions,
            Self::whole_vectors,
            Self::told_by_atomics,
            Self::workgroup,
        ];
        let mut complaints: Vec<String> = rules.iter().flat_map(|rule| rule(self)).collect();
        for language in LANGUAGES {
            for checks in [Checks::Unchecked, Checks::Checked] {
                complaints.extend(self.write(language, checks).err());
            }
        }
        complaints.extend(self.write(USUAL, Checks::Unchecked).iter().flat_map(|text| forbidden(text)));
        complaints
    }

    fn limits(&self) -> Vec<String> {
        let storage = self.bindings.iter().filter(|b| b.access != Access::Uniform).count();
        let counts = [
            ("storage buffers", storage, STORAGE_BUFFERS),
            ("buffers", self.bindings.len() + usize::from(self.sizes().is_some()), BUFFERS),
            ("bytes of workgroup memory", self.workgroup_bytes as usize, WORKGROUP_BYTES as usize),
            ("invocations", self.workgroup_size as usize, 1024),
        ];
        let over = counts.into_iter().filter(|(_, count, most)| count > most);
        over.map(|(what, count, most)| format!("{count} {what}, at most {most}")).collect()
    }

    /// If a kernel is limited to 32 invocations, Apple's compiler lets barriers order no memory accesses.
    fn workgroup(&self) -> Vec<String> {
        let shares = self.workgroup_bytes > 0 || self.functions().any(|function| waits(&function.body));
        let small = self.workgroup_size <= SUBGROUP && shares;
        let complaint = || format!("{} invocations share memory or wait for one another", self.workgroup_size);
        small.then(complaint).into_iter().collect()
    }

    /// A vector of 16 bytes is loaded from a multiple of 16, so members and elements that contain one must be aligned.
    fn layout(&self) -> Vec<String> {
        let mut layouter = Layouter::default();
        if let Err(e) = layouter.update(self.module.to_ctx()) {
            return vec![format!("no layout: {e}")];
        }
        let mut complaints = Vec::new();
        let aligned = |ty, at: u32| layouter[ty].alignment.is_aligned(at);
        for (_, ty) in self.module.types.iter() {
            let name = ty.name.as_deref().unwrap_or("an array");
            match &ty.inner {
                TypeInner::Struct { members, .. } => complaints.extend(
                    members.iter().filter(|m| !aligned(m.ty, m.offset)).map(|m| format!("{name}: {:?}", m.name)),
                ),
                TypeInner::Array { base, stride, .. } if !aligned(*base, *stride) => {
                    complaints.push(format!("{name}: elements {stride} bytes apart"));
                }
                _ => {}
            }
        }
        complaints
    }

    fn finite_constants(&self) -> Vec<String> {
        let functions = self.functions().flat_map(|f| f.expressions.iter().map(|(_, e)| e));
        let constants = self.module.global_expressions.iter().map(|(_, e)| e);
        let finite = |e: &Expression| match e {
            Expression::Literal(Literal::F32(v)) => v.is_finite(),
            Expression::Literal(Literal::F64(v)) => v.is_finite(),
            Expression::Literal(Literal::F16(v)) => v.is_finite(),
            _ => true,
        };
        functions.chain(constants).filter(|e| !finite(e)).map(|e| format!("a constant {e:?}")).collect()
    }

    fn functions(&self) -> impl Iterator<Item = &Function> {
        let entries = self.module.entry_points.iter().map(|entry| &entry.function);
        self.module.functions.iter().map(|(_, f)| f).chain(entries)
    }

    fn finite_functions(&self) -> Vec<String> {
        self.functions().flat_map(|f| f.expressions.iter().filter_map(|(_, e)| tells_numbers(f, e))).collect()
    }

    /// Apple's compiler writes a component of a vector by reading and writing the whole vector, so what another
    /// invocation writes to another component meanwhile is lost.
    fn whole_vectors(&self) -> Vec<String> {
        let functions = self.module.functions.iter().map(|(handle, function)| (function, &self.info[handle]));
        let entries = self.module.entry_points.iter().enumerate();
        let entries = entries.map(|(index, entry)| (&entry.function, self.info.get_entry_point(index)));
        let parts = functions.chain(entries).flat_map(|(function, info)| {
            let stored = stored(&function.body).into_iter();
            stored.filter(|pointer| self.is_shared_part(function, info, *pointer)).collect::<Vec<_>>()
        });
        parts.map(|pointer| format!("a part of a shared vector is written: {pointer:?}")).collect()
    }

    /// A value that some invocations store in workgroup memory under a condition is meant for others, which may not see
    /// it: Apple's compiler may reuse the value that an invocation last read or wrote there (see
    /// `clang::Memory::Noalias`).
    fn told_by_atomics(&self) -> Vec<String> {
        let told = self.functions().flat_map(|function| {
            let stored = conditionally_stored(&function.body).into_iter();
            stored.filter_map(|pointer| self.one_place(function, pointer)).collect::<Vec<_>>()
        });
        told.map(|name| format!("some invocations write `{name}` for all: it has to be atomic")).collect()
    }

    /// The variable in workgroup memory that an expression points to, itself or at a constant index.
    fn one_place<'a>(&'a self, function: &Function, pointer: Handle<Expression>) -> Option<&'a str> {
        match function.expressions[pointer] {
            Expression::GlobalVariable(global) => {
                let global = &self.module.global_variables[global];
                let plain = global.space == AddressSpace::WorkGroup && !self.is_atomic(global.ty);
                plain.then(|| global.name.as_deref().unwrap_or_default())
            }
            Expression::AccessIndex { base, .. } => self.one_place(function, base),
            _ => None,
        }
    }

    fn is_atomic(&self, ty: Handle<Type>) -> bool {
        match self.module.types[ty].inner {
            TypeInner::Atomic(_) => true,
            TypeInner::Array { base, .. } => self.is_atomic(base),
            _ => false,
        }
    }

    /// Whether an expression points to a part of a vector that other invocations see.
    fn is_shared_part(&self, function: &Function, info: &FunctionInfo, pointer: Handle<Expression>) -> bool {
        let base = match function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => base,
            _ => return false,
        };
        let (vector, space) = match *info[base].ty.inner_with(&self.module.types) {
            TypeInner::Pointer { base, space } => {
                (matches!(self.module.types[base].inner, TypeInner::Vector { .. }), space)
            }
            TypeInner::ValuePointer { size, space, .. } => (size.is_some(), space),
            _ => return false,
        };
        vector && matches!(space, AddressSpace::WorkGroup | AddressSpace::Storage { .. })
    }
}

/// Whether a block, or one within it, has a barrier.
fn waits(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::ControlBarrier(_) | Statement::MemoryBarrier(_) | Statement::WorkGroupUniformLoad { .. } => true,
        Statement::Block(block) => waits(block),
        Statement::If { accept, reject, .. } => waits(accept) || waits(reject),
        Statement::Switch { cases, .. } => cases.iter().any(|case| waits(&case.body)),
        Statement::Loop { body, continuing, .. } => waits(body) || waits(continuing),
        _ => false,
    })
}

/// The invocations of a workgroup by the constant of a variant's header, which is what its entry says too.
pub fn invocations(variant: &Variant) -> u32 {
    let size = variant.constants.iter().find_map(|(name, value)| match value {
        Constant::U32(size) if name == "WORKGROUP" => Some(*size),
        _ => None,
    });
    let sized = variant.parts.last().is_some_and(|op| op.source.text.contains("@workgroup_size(WORKGROUP)"));
    size.filter(|_| sized).unwrap_or_else(|| panic!("{} does not have workgroups of WORKGROUP", variant.label))
}

/// The destinations of stores in a block and in the blocks inside it.
fn stored(block: &Block) -> Vec<Handle<Expression>> {
    let of = |statement: &Statement| match statement {
        Statement::Store { pointer, .. } => vec![*pointer],
        Statement::Block(block) => stored(block),
        Statement::If { accept, reject, .. } => [stored(accept), stored(reject)].concat(),
        Statement::Switch { cases, .. } => cases.iter().flat_map(|case| stored(&case.body)).collect(),
        Statement::Loop { body, continuing, .. } => [stored(body), stored(continuing)].concat(),
        _ => vec![],
    };
    block.iter().flat_map(of).collect()
}

/// The destinations of conditional stores in a block.
fn conditionally_stored(block: &Block) -> Vec<Handle<Expression>> {
    let of = |statement: &Statement| match statement {
        Statement::Block(block) => conditionally_stored(block),
        Statement::Loop { body, continuing, .. } => {
            [conditionally_stored(body), conditionally_stored(continuing)].concat()
        }
        Statement::If { accept, reject, .. } => [stored(accept), stored(reject)].concat(),
        Statement::Switch { cases, .. } => cases.iter().flat_map(|case| stored(&case.body)).collect(),
        _ => vec![],
    };
    block.iter().flat_map(of).collect()
}

/// The violation of an expression that tests for NaNs or infinities, or makes one.
fn tells_numbers(function: &Function, expression: &Expression) -> Option<String> {
    let literal = |handle| match function.expressions[handle] {
        Expression::Literal(Literal::U32(bits)) => Some(bits),
        Expression::Literal(Literal::I32(bits)) => Some(bits as u32),
        _ => None,
    };
    match *expression {
        Expression::Relational { fun: fun @ (RelationalFunction::IsNan | RelationalFunction::IsInf), .. } => {
            Some(format!("{fun:?}"))
        }
        Expression::Binary { op: BinaryOperator::Equal | BinaryOperator::NotEqual, left, right } if left == right => {
            Some("a value compared with itself".to_owned())
        }
        Expression::As { expr, kind: ScalarKind::Float, convert: None } => {
            let bits = literal(expr).filter(|bits| bits & INFINITY == INFINITY)?;
            Some(format!("the f32 of bits {bits:#x}"))
        }
        _ => None,
    }
}

/// The words of a text that stand for infinities and NaNs.
fn forbidden(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| FORBIDDEN.contains(word)).map(|word| format!("the text says `{word}`")).collect()
}

/// The offset of a binding is a multiple of the largest alignment that a device may require, which is more than Metal's
/// 32.
fn misplaced(plan: &Plan) -> Vec<String> {
    let bindings = plan.steps.iter().flat_map(|step| step.bindings.iter().map(move |b| (&step.label, b)));
    let wrong = bindings.filter(|(_, b)| b.offset % ALIGNMENT != 0);
    wrong.map(|(label, b)| format!("{label}: `{}` starts at byte {}", b.name, b.offset)).collect()
}

fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn every_shader_obeys_the_rules_for_every_system() {
    let shaders = variants::all();
    println!("{} shaders, {} versions of the language, checked and not", shaders.len(), LANGUAGES.len());
    let complain = |shader: &Shader| -> Vec<String> {
        shader.complaints().iter().map(|complaint| format!("{}: {complaint}", shader.label)).collect()
    };
    none(shaders.values().flat_map(complain).collect());
}

/// For every shape, choice, tiling and target. No kernel has so few invocations, so none has to be parsed to find out
/// whether they share memory.
#[test]
fn every_workgroup_has_more_invocations_than_a_simdgroup() {
    let start = Instant::now();
    let variants = variants::every();
    println!("{} variants, {:.1} s", variants.len(), start.elapsed().as_secs_f32());
    let small = variants.iter().filter(|variant| invocations(variant) <= SUBGROUP);
    none(small.map(|variant| format!("{}: a workgroup of {}", variant.label, invocations(variant))).collect());
    for (variant, shader) in variants::all() {
        assert_eq!(invocations(variant), shader.workgroup_size, "{}", shader.label);
    }
}

/// A user may give any tiling that the tuner tries; one that is too small is refused.
#[test]
fn the_tuner_tries_only_what_a_user_may_choose() {
    for target in variants::targets() {
        for rows in FEW_CLASSES.into_iter().chain([RowRange::new(1, 1)]) {
            for tiling in tiling_candidates(&target, rows) {
                assert_eq!(tiling.to_string().parse::<Tiling>().unwrap(), tiling);
            }
        }
        for tile in tile_candidates(&target) {
            assert_eq!(tile.to_string().parse::<ProductTile>().unwrap(), tile);
        }
    }
    for small in ["32x1x32", "8x4x32", "4x1x32x4"] {
        let told = small.parse::<Tiling>().unwrap_err().to_string();
        assert!(told.contains("workgroup 64 to 1024") && told.contains(small), "{told}");
    }
    let told = "1x1x2x2x1".parse::<ProductTile>().unwrap_err().to_string();
    assert!(told.contains("2 to 32 subgroups"), "{told}");
}

#[test]
fn every_binding_is_aligned() {
    none(variants::model_plans().iter().flat_map(misplaced).collect());
}

/// Each rule is violated once.
#[test]
fn violated_rules_are_detected() {
    let broken = [
        ("enable f16, wgpu_cooperative_matrix;\n", "var<workgroup> t: array<f16, 256>;", BROKEN_MATRIX, "16 x 16"),
        ("", "var<workgroup> t: array<f32, 8193>;", "t[i] = 1.0;", "32784 bytes of workgroup memory"),
        ("", "", "y[i] = bitcast<f32>(0x7f800000u);", "of bits 0x7f800000"),
        ("", "", "let v = y[i]; if v != v { y[i] = 0.0; }", "compared with itself"),
        ("", "var<workgroup> t: array<vec4<f32>, 8>;", "t[i / 4u][i % 4u] = y[i];", "part of a shared vector"),
        ("", "var<workgroup> t: vec4<u32>;", "if i == 0u { t.x = 1u; } y[i] = f32(t.x);", "part of a shared vector"),
        ("", "", "y[i] = 1.0; storageBarrier(); y[i] += y[i ^ 1u];", "32 invocations share memory"),
        ("", "var<workgroup> t: array<f32, 32>;", "t[i] = 1.0; y[i] = t[31u - i];", "32 invocations share memory"),
        ("", "var<workgroup> t: f32;", "if i == 0u { t = y[0]; } workgroupBarrier(); y[i] = t;", "`t` for all"),
    ];
    for (enables, globals, body, wanted) in broken {
        let text = format!(
            "{enables}{globals}\nvar<storage, read_write> y: array<f32>;\n@compute @workgroup_size(32)\n\
             fn main(@builtin(local_invocation_index) i: u32) {{ {body} }}\n"
        );
        let told = match Shader::from_text(&text) {
            Ok(shader) => shader.complaints(),
            Err(error) => vec![error],
        };
        assert!(told.iter().any(|complaint| complaint.contains(wanted)), "`{body}`: {told:?}");
    }
    assert_eq!(forbidden("float x = INFINITY; bool b = metal::isnan(x);").len(), 2);
}

const BROKEN_MATRIX: &str = "let m = coop_mat16x16<f16, C>(); coopStoreT(m, &t[0], 16u);";
