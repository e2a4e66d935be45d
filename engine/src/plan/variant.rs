//! Assembles a variant of a kernel.

use super::{Target, Team};
use crate::error::{Error, Result};
use crate::quant::{Arithmetic, Quant};
use crate::shader::{Constant, SourcePart, Variant};
use crate::wgsl::{Source, source};

/// Assembles a [`Variant`]: constants, library files, weights in their roles, and finally the kernel's own file.
pub struct VariantBuilder {
    pub(super) kernel: &'static str,
    op: Source,
    size: usize,
    formats: Vec<&'static str>,
    team: Option<&'static str>,
    tag: String,
    enables: Vec<&'static str>,
    constants: Vec<(String, Constant)>,
    parts: Vec<SourcePart>,
}

impl VariantBuilder {
    /// A variant of the kernel in `op`, with workgroups of `size` invocations.
    pub fn new(kernel: &'static str, op: Source, size: usize) -> Self {
        let constants = vec![("WORKGROUP".to_owned(), Constant::U32(size as u32))];
        Self {
            kernel,
            op,
            size,
            formats: vec![],
            team: None,
            tag: String::new(),
            enables: vec![],
            constants,
            parts: vec![],
        }
    }

    /// Enables cooperative matrices, which subgroups of 32 invocations multiply.
    pub fn matrices(mut self) -> Self {
        self.enables = vec!["f16, wgpu_cooperative_matrix"];
        let subgroups = self.size / 32;
        self.constant("SUBGROUPS", "", subgroups)
    }

    /// Appends to the label.
    pub fn tag(mut self, short: &str) -> Self {
        self.tag.push_str(short);
        self
    }

    /// Adds a constant `name` to the header. In the label it is called `short`; if that is empty, the label leaves it
    /// out.
    pub fn constant(mut self, name: &str, short: &str, value: usize) -> Self {
        self.constants.push((name.to_owned(), Constant::U32(value as u32)));
        if !short.is_empty() {
            self.tag.push_str(&format!("{short}{value}"));
        }
        self
    }

    /// Like [`VariantBuilder::constant`], for a finite f32.
    pub fn real(mut self, name: &str, short: &str, value: f32) -> Self {
        self.constants.push((name.to_owned(), Constant::F32(value.to_bits())));
        if !short.is_empty() {
            self.tag.push_str(&format!("{short}{value:e}"));
        }
        self
    }

    /// Adds a constant `name` of type bool to the header. If it is true, `short` is appended to the label.
    pub fn switch(mut self, name: &str, short: &str, on: bool) -> Self {
        self.constants.push((name.to_owned(), Constant::Bool(on)));
        self.tag.push_str(if on { short } else { "" });
        self
    }

    /// Adds a library file.
    pub fn file(mut self, source: Source) -> Self {
        self.parts.push(SourcePart { source, role: "w" });
        self
    }

    /// Adds a library file that serves a weight, in the role of that weight.
    pub fn file_for(mut self, role: &'static str, source: Source) -> Self {
        self.parts.push(SourcePart { source, role });
        self
    }

    /// Adds a library file that was chosen among several, and a part of the label that names it. For the usual file
    /// that part is empty.
    pub fn tagged(self, (source, short): (Source, &'static str)) -> Self {
        self.labelled(short).file(source)
    }

    /// Adds a part of the label between dots, unless it is empty.
    pub fn labelled(mut self, short: &'static str) -> Self {
        self.formats.extend(Some(short).filter(|short| !short.is_empty()));
        self
    }

    /// Adds the library files of a team of `lanes` lanes.
    pub fn team(mut self, team: Team, lanes: usize) -> Self {
        let (short, files) = match team {
            Team::Subgroup => ("sg", vec![source!("lib/invocation.wgsl"), source!("lib/team_subgroup.wgsl")]),
            Team::Workgroup => ("wg", vec![source!("lib/team_workgroup.wgsl")]),
        };
        self.team = Some(short);
        files.into_iter().fold(self.constant("LANES", "l", lanes), Self::file)
    }

    /// Adds the library files of a team of `lanes` lanes, for a product that computes several rows at a time. If the
    /// target's subgroups have fewer lanes, the team consists of several subgroups.
    pub fn team_of_rows(self, target: &Target, lanes: usize) -> Self {
        if target.team == Team::Workgroup || lanes <= target.subgroup {
            return self.team(target.team, lanes).file(source!("lib/sums.wgsl"));
        }
        let mut variant = self.constant("LANES", "l", lanes).constant("SUBGROUP", "s", target.subgroup);
        variant.team = Some("sg");
        variant.file(source!("lib/invocation.wgsl")).file(source!("lib/team_wide.wgsl"))
    }

    /// Adds the library files of the target's usual team.
    pub fn usual_team(self, target: &Target) -> Self {
        let lanes = target.lanes(self.size);
        self.team(target.team, lanes)
    }

    /// Adds the files that decode a weight's format, in the role of that weight.
    pub fn decode(self, role: &'static str, quant: &'static Quant) -> Self {
        self.format(role, quant, quant.decode_files())
    }

    /// Adds the files that decode a weight's format to f16, in the role of that weight.
    pub fn halve(self, role: &'static str, quant: &'static Quant) -> Self {
        self.format(role, quant, quant.half_files())
    }

    /// Adds the files that multiply a weight's format with activations, in the role of that weight.
    pub fn dot(self, role: &'static str, quant: &'static Quant, arithmetic: Arithmetic) -> Self {
        self.format(role, quant, quant.dot_files(arithmetic))
    }

    fn format(mut self, role: &'static str, quant: &'static Quant, files: Vec<Source>) -> Self {
        self.formats.push(quant.name);
        if let Some(grid) = quant.grid() {
            self.constants.push((format!("{role}_GRID"), Constant::U32(grid.first as u32)));
        }
        for part in quant.table_files().into_iter().map(|source| SourcePart { source, role: "w" }) {
            if !self.parts.contains(&part) {
                self.parts.push(part);
            }
        }
        self.parts.extend(files.into_iter().map(|source| SourcePart { source, role }));
        self
    }

    /// Fails if its workgroups have fewer invocations than [`Target::MIN_WORKGROUP`]: no kernel is ever compiled with
    /// fewer.
    pub(super) fn check_size(&self, step: &str) -> Result<()> {
        if self.size >= Target::MIN_WORKGROUP {
            return Ok(());
        }
        let got = format!("workgroups of {} invocations", self.size);
        let want =
            format!("at least {}: barriers of smaller ones order no memory on Apple's GPUs", Target::MIN_WORKGROUP);
        Err(Error::Shape { op: self.kernel, tensor: step.to_owned(), got, want })
    }

    pub(super) fn finish(mut self) -> Variant {
        self.parts.push(SourcePart { source: self.op, role: "w" });
        let parts: String = self.formats.iter().chain(&self.team).map(|part| format!(".{part}")).collect();
        let label = format!("{}{parts}.{}w{}", self.kernel, self.tag, self.size);
        Variant { label, enables: self.enables, constants: self.constants, parts: self.parts }
    }
}
