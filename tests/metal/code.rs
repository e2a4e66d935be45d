//! Counts a kernel's operations in clang's intermediate code, in the loop in which it spends its time.
//!
//! A GPU computes scalars, so an instruction on a vector counts once for each lane, without the lanes for which it does
//! nothing (a shift by 0, an `and` with all ones). A product whose only use is a sum is one operation with that sum. A
//! right shift whose only use is an `and` with 2^n − 1 extracts a bit field, and the two are one operation. Addresses,
//! branches, and instructions that only move or rename values (casts between sizes of integers, lanes of vectors) are
//! not counted.

use std::collections::{HashMap, HashSet};

/// The operations of a piece of code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Operations {
    /// Conversions from integers to floats or back.
    pub conversions: usize,
    pub shifts: usize,
    /// Extractions of bit fields.
    pub fields: usize,
    /// Multiplications of integers.
    pub multiplications: usize,
    /// Conversions between f16 and f32.
    pub halves: usize,
    /// All other computing instructions.
    pub others: usize,
    /// Multiplications of floats. Those that no sum follows are also among the others.
    pub products: usize,
    /// Loads and stores, also of vectors. They are not operations.
    pub loads: usize,
    pub stores: usize,
}

impl Operations {
    /// The operations that run at a quarter of the rate on Apple's GPUs.
    pub fn slow(&self) -> usize {
        self.conversions + self.shifts + self.fields + self.multiplications
    }

    pub fn all(&self) -> usize {
        self.slow() + self.halves + self.others
    }
}

impl std::ops::AddAssign for Operations {
    fn add_assign(&mut self, other: Self) {
        self.conversions += other.conversions;
        self.shifts += other.shifts;
        self.fields += other.fields;
        self.multiplications += other.multiplications;
        self.halves += other.halves;
        self.others += other.others;
        self.products += other.products;
        self.loads += other.loads;
        self.stores += other.stores;
    }
}

/// An instruction: `%name = opcode operands`.
struct Instruction<'a> {
    name: &'a str,
    opcode: &'a str,
    text: &'a str,
}

impl<'a> Instruction<'a> {
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        let (name, text) = match line.split_once(" = ") {
            Some((name, text)) if name.starts_with('%') => (name, text),
            _ => ("", line),
        };
        let text =
            ["tail ", "musttail ", "notail "].iter().fold(text, |text, mark| text.strip_prefix(mark).unwrap_or(text));
        let text = text.split(", !").next().unwrap_or(text);
        Self { name, opcode: text.split(' ').next().unwrap_or(""), text }
    }

    /// The type of its operands, and the operands.
    fn operands(&self) -> &'a str {
        let flags =
            ["nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "fast", "nnan", "ninf", "nsz", "arcp", "contract"];
        let flags = [&flags[..], &["afn", "reassoc"]].concat();
        let mut rest = self.text.split_once(' ').map_or("", |(_, rest)| rest);
        while let Some((word, after)) = rest.split_once(' ') {
            if !(flags.contains(&word) || self.opcode.ends_with("cmp") && word.len() <= 3) {
                break;
            }
            rest = after;
        }
        rest
    }

    /// The number of lanes of its operands; 1 for scalars.
    fn lanes(&self) -> usize {
        let vector = self.operands().strip_prefix('<').and_then(|rest| rest.split(' ').next());
        vector.and_then(|lanes| lanes.parse().ok()).unwrap_or(1)
    }

    /// The last operand, lane by lane, if it is constant.
    fn constants(&self) -> Option<Vec<i64>> {
        let operands = self.operands();
        if operands.ends_with("zeroinitializer") {
            return Some(vec![0; self.lanes()]);
        }
        if self.lanes() == 1 {
            return Some(vec![operands.rsplit(' ').next()?.parse().ok()?]);
        }
        let list = operands.strip_suffix('>')?.rsplit_once(", <")?.1;
        // LLVM 20 and later write `splat (i32 8)` for vectors of equal values.
        list.split(", ").map(|lane| lane.split(' ').nth(1)?.parse().ok()).collect()
    }

    /// The number of lanes in which it has an effect, if it has none with `nothing` as its second operand.
    fn busy(&self, nothing: i64) -> usize {
        match self.constants() {
            Some(lanes) => lanes.iter().filter(|lane| **lane != nothing).count(),
            None => self.lanes(),
        }
    }

    /// The values that it uses.
    fn uses(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let ends = |c: char| !(c.is_alphanumeric() || c == '_' || c == '.');
        let text = self.text;
        text.match_indices('%').map(move |(at, _)| {
            let rest = &text[at + 1..];
            &text[at..at + 1 + rest.find(ends).unwrap_or(rest.len())]
        })
    }
}

/// The code of a function: blocks by their numbers, in order.
pub struct Function<'a> {
    blocks: Vec<Block<'a>>,
    /// How often each value is used.
    uses: HashMap<&'a str, usize>,
}

struct Block<'a> {
    label: &'a str,
    instructions: Vec<Instruction<'a>>,
    next: Vec<usize>,
}

impl<'a> Function<'a> {
    /// The function whose name in the code contains `name`.
    pub fn find(code: &'a str, name: &str) -> Result<Self, String> {
        let defined = |text: &&str| text.lines().next().is_some_and(|line| line.contains(name));
        let text = code.split("\ndefine ").skip(1).find(defined).ok_or_else(|| format!("no function {name}"))?;
        let body = text.split("\n}").next().unwrap_or(text);
        let mut blocks = vec![Block { label: "", instructions: Vec::new(), next: Vec::new() }];
        for line in body.lines().skip(1).filter(|line| !line.trim().is_empty()) {
            match line.split_once(':') {
                Some((label, _)) if !line.starts_with(' ') => {
                    blocks.push(Block { label, instructions: Vec::new(), next: Vec::new() });
                }
                _ => blocks.last_mut().ok_or("no block")?.instructions.push(Instruction::of(line)),
            }
        }
        let numbers: HashMap<&str, usize> = blocks.iter().map(|block| block.label).zip(0..).collect();
        for block in &mut blocks {
            let ends = block.instructions.iter().filter(|i| i.name.is_empty()).flat_map(Instruction::uses);
            block.next = ends.filter_map(|label| numbers.get(&label[1..]).copied()).collect();
        }
        let mut uses = HashMap::new();
        for used in blocks.iter().flat_map(|block| &block.instructions).flat_map(Instruction::uses) {
            *uses.entry(used).or_default() += 1;
        }
        Ok(Self { blocks, uses })
    }

    /// The operations of the whole function, if it has no loops.
    pub fn whole(&self) -> Result<Operations, String> {
        let all = || self.count(&(0..self.blocks.len()).collect());
        if self.loops().is_empty() { Ok(all()) } else { Err("a loop".to_owned()) }
    }

    /// The operations of one iteration of its busiest innermost loop.
    pub fn busiest_loop(&self) -> Result<Operations, String> {
        let loops = self.loops();
        let inner =
            loops.iter().filter(|(head, body)| !loops.keys().any(|other| other != *head && body.contains(other)));
        inner.map(|(_, body)| self.count(body)).max_by_key(Operations::all).ok_or_else(|| "no loop".to_owned())
    }

    /// The natural loops: their first block, and all of their blocks.
    fn loops(&self) -> HashMap<usize, HashSet<usize>> {
        let dominators = self.dominators();
        let mut loops: HashMap<usize, HashSet<usize>> = HashMap::new();
        for (from, block) in self.blocks.iter().enumerate() {
            for &head in block.next.iter().filter(|head| dominators[from].contains(head)) {
                let body = loops.entry(head).or_insert_with(|| HashSet::from([head]));
                let mut open = vec![from];
                while let Some(at) = open.pop() {
                    if body.insert(at) {
                        open.extend((0..self.blocks.len()).filter(|before| self.blocks[*before].next.contains(&at)));
                    }
                }
            }
        }
        loops
    }

    /// For each block, the blocks that every path to it passes, including itself.
    fn dominators(&self) -> Vec<HashSet<usize>> {
        let all: HashSet<usize> = (0..self.blocks.len()).collect();
        let mut dominators = vec![all; self.blocks.len()];
        dominators[0] = HashSet::from([0]);
        loop {
            let mut changed = false;
            for at in 1..self.blocks.len() {
                let before = (0..self.blocks.len()).filter(|b| self.blocks[*b].next.contains(&at));
                let common = before.map(|b| dominators[b].clone()).reduce(|a, b| &a & &b).unwrap_or_default();
                let found = &common | &HashSet::from([at]);
                changed |= found != dominators[at];
                dominators[at] = found;
            }
            if !changed {
                return dominators;
            }
        }
    }

    fn count(&self, blocks: &HashSet<usize>) -> Operations {
        let instructions = || blocks.iter().flat_map(|block| &self.blocks[*block].instructions);
        let by_name: HashMap<&str, &Instruction> = instructions().map(|i| (i.name, i)).collect();
        let mut total = Operations::default();
        for instruction in instructions() {
            total += self.one(instruction, &by_name);
        }
        total
    }

    /// Adds an instruction to the count, given the instructions that its operands come from.
    fn one(&self, instruction: &Instruction, by_name: &HashMap<&str, &Instruction>) -> Operations {
        let (mut counted, lanes) = (Operations::default(), instruction.lanes());
        match instruction.opcode {
            "uitofp" | "sitofp" | "fptoui" | "fptosi" => counted.conversions = lanes,
            "fpext" | "fptrunc" => counted.halves = lanes,
            "lshr" if self.is_field(instruction, by_name) => counted.fields = lanes,
            "shl" | "lshr" | "ashr" => counted.shifts = instruction.busy(0),
            "mul" => counted.multiplications = lanes,
            "and" if self.takes_field(instruction, by_name) => {}
            "and" => counted.others = instruction.busy(-1),
            "or" | "xor" | "add" | "sub" => counted.others = instruction.busy(0),
            "fmul" => (counted.others, counted.products) = (lanes, lanes),
            "fadd" | "fsub" if self.ends_product(instruction, by_name) => {}
            "fadd" | "fsub" | "fneg" | "fdiv" | "udiv" | "sdiv" | "urem" | "srem" | "icmp" | "fcmp" | "select" => {
                counted.others = lanes;
            }
            // A lane whose index is known only at run time: many compilers keep the vector in memory for it.
            "extractelement" if instruction.text.contains(", i64 %") || instruction.text.contains(", i32 %") => {
                counted.loads = 1
            }
            "load" => counted.loads = 1,
            "store" => counted.stores = 1,
            "call" => counted = Self::call(instruction),
            _ => {}
        }
        counted
    }

    fn call(instruction: &Instruction) -> Operations {
        let lanes = instruction.lanes();
        let Some((_, called)) = instruction.text.split_once("@llvm.") else { return Operations::default() };
        match called.split(['.', '(']).next().unwrap_or("") {
            "fma" | "fmuladd" => Operations { others: lanes, products: lanes, ..Default::default() },
            "fshl" | "fshr" => Operations { shifts: lanes, ..Default::default() },
            "lifetime" | "assume" | "experimental" | "dbg" => Operations::default(),
            _ => Operations { others: lanes, ..Default::default() },
        }
    }

    /// The only user of a value, among the counted instructions in `by_name`.
    fn user<'b>(&self, name: &str, by_name: &HashMap<&str, &'b Instruction<'a>>) -> Option<&'b Instruction<'a>> {
        let once = self.uses.get(name) == Some(&1);
        by_name.values().find(|user| once && user.uses().any(|used| used == name)).copied()
    }

    /// Whether a right shift is one operation with the `and` after it.
    fn is_field(&self, shift: &Instruction, by_name: &HashMap<&str, &Instruction>) -> bool {
        let low = |mask: &i64| *mask > 0 && (mask & (mask + 1)) == 0;
        let user = self.user(shift.name, by_name).filter(|user| user.opcode == "and");
        user.and_then(Instruction::constants).is_some_and(|masks| masks.iter().all(low))
            && shift.busy(0) == shift.lanes()
    }

    fn takes_field(&self, and: &Instruction, by_name: &HashMap<&str, &Instruction>) -> bool {
        let shifts = and.uses().filter_map(|name| by_name.get(name)).filter(|shift| shift.opcode == "lshr");
        shifts.into_iter().any(|shift| self.is_field(shift, by_name))
    }

    /// Whether one of its operands is a product whose only use is this sum: of vectors, or of lanes of one.
    fn ends_product(&self, sum: &Instruction, by_name: &HashMap<&str, &Instruction>) -> bool {
        let product = |name: &str| by_name.get(name).is_some_and(|i| i.opcode == "fmul");
        sum.uses().filter(|name| self.uses.get(name) == Some(&1)).any(|name| match by_name.get(name) {
            Some(lane) if lane.opcode == "extractelement" => lane.uses().any(product),
            _ => product(name),
        })
    }
}
