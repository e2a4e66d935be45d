//! Parses a composed variant with naga: validates it, numbers its bindings, and describes them.
//!
//! The WGSL files have no `@binding` numbers, because a file does not know which others it is composed with. Globals
//! are numbered in order, and bound by name.

use super::{Access, BindingInfo, Variant};
use crate::error::{Error, Result};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, ResourceBinding, StorageAccess, TypeInner};

/// A field of the kernel's `Params`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The WGSL name.
    pub name: String,
    /// The offset in the struct in bytes.
    pub offset: u32,
    /// The size in bytes.
    pub bytes: u32,
}

/// A variant as naga has parsed it.
pub struct Reflected {
    /// The module, with numbered bindings.
    pub module: naga::Module,
    /// The buffers, by binding number.
    pub bindings: Vec<BindingInfo>,
    /// The fields of the kernel's `Params`, if it has any.
    pub params: Vec<Field>,
    /// The number of invocations in a workgroup.
    pub workgroup_size: u32,
    /// The size of workgroup memory in bytes.
    pub workgroup_bytes: u32,
}

/// Parses and validates a variant, and numbers its bindings.
pub fn reflect(variant: &Variant) -> Result<Reflected> {
    let text = variant.compose();
    let mut module = naga::front::wgsl::parse_str(&text)
        .map_err(|e| failed(variant, &text, e.message(), e.location(&text), e.emit_to_string(&text)))?;
    let bindings = number_bindings(&mut module);
    Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .map_err(|e| failed(variant, &text, &e.to_string(), e.location(&text), e.emit_to_string(&text)))?;
    let main = module.entry_points.iter().find(|e| e.name == "main");
    let Some(main) = main else {
        return Err(Error::Shader { variant: variant.label.clone(), message: "no entry point `main`".into() });
    };
    let workgroup_size = main.workgroup_size.iter().product();
    Ok(Reflected {
        bindings,
        params: params(&module),
        workgroup_size,
        workgroup_bytes: workgroup_bytes(&module),
        module,
    })
}

fn failed(variant: &Variant, text: &str, message: &str, at: Option<naga::SourceLocation>, detail: String) -> Error {
    let place = at.map_or(String::from("unknown location"), |at| {
        let (file, line) = variant.origin(at.line_number as usize);
        let source = text.lines().nth(at.line_number as usize - 1).unwrap_or_default().trim();
        format!("wgsl/{file}:{line}: `{source}`")
    });
    tracing::debug!("{detail}");
    Error::Shader { variant: variant.label.clone(), message: format!("{place}: {message}") }
}

fn number_bindings(module: &mut naga::Module) -> Vec<BindingInfo> {
    let mut bindings = Vec::new();
    for (_, global) in module.global_variables.iter_mut() {
        let access = match global.space {
            AddressSpace::Uniform => Access::Uniform,
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => Access::ReadWrite,
            AddressSpace::Storage { .. } => Access::Read,
            _ => continue,
        };
        global.binding = Some(ResourceBinding { group: 0, binding: bindings.len() as u32 });
        bindings.push(BindingInfo { name: global.name.clone().unwrap_or_default(), access });
    }
    bindings
}

fn params(module: &naga::Module) -> Vec<Field> {
    let uniform = module.global_variables.iter().find(|(_, g)| g.space == AddressSpace::Uniform);
    let Some((_, global)) = uniform else { return Vec::new() };
    let TypeInner::Struct { members, .. } = &module.types[global.ty].inner else { return Vec::new() };
    let size = |ty| module.types[ty].inner.size(module.to_ctx());
    let field = |m: &naga::StructMember| Field {
        name: m.name.clone().unwrap_or_default(),
        offset: m.offset,
        bytes: size(m.ty),
    };
    members.iter().map(field).collect()
}

fn workgroup_bytes(module: &naga::Module) -> u32 {
    let shared = module.global_variables.iter().filter(|(_, g)| g.space == AddressSpace::WorkGroup);
    shared.map(|(_, g)| module.types[g.ty].inner.size(module.to_ctx()).next_multiple_of(16)).sum()
}
