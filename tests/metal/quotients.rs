//! Makes the machine divide floats, so that divisions may err (shim/machine.cpp). C++ cannot overload the division of
//! floats, so this changes the intermediate code of kernels.

use std::fmt::Write;

/// The declaration of the machine's function in intermediate code.
const DECLARED: &str = "declare float @machine_quotient(float, float) nounwind willreturn readnone\n";

/// The code with every division of floats and of vectors of floats replaced by calls of the machine.
pub fn by_the_machine(code: &str) -> Result<String, String> {
    let mut out = String::with_capacity(code.len() + 2048);
    for line in code.lines() {
        match line.split_once(" = fdiv ") {
            Some((result, division)) => out.push_str(&call(result, division)?),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out.push_str(DECLARED);
    (2..=4).for_each(|size| out.push_str(&of_vectors(size)));
    Ok(out)
}

/// The instruction that replaces a division. Divisions of other types stay.
fn call(result: &str, division: &str) -> Result<String, String> {
    let unknown = || format!("an unknown division: {division}");
    let start = division.find('<').into_iter().chain(division.find("float ")).min();
    let Some(operation) = start.map(|at| &division[at..]) else { return Ok(format!("{result} = fdiv {division}")) };
    let (ty, name, operands) = if let Some(operands) = operation.strip_prefix("float ") {
        ("float".to_owned(), "machine_quotient".to_owned(), operands)
    } else {
        let (ty, operands) = operation.split_once("> ").ok_or_else(unknown)?;
        let Some(size) = ty.strip_prefix('<').and_then(|ty| ty.strip_suffix(" x float")) else {
            return Ok(format!("{result} = fdiv {division}"));
        };
        (format!("{ty}>"), format!("quotient_{size}"), operands)
    };
    let [a, b] = operands_of(operands).ok_or_else(unknown)?;
    Ok(format!("{result} = call {ty} @{name}({ty} {a}, {ty} {b})"))
}

/// The two operands, separated by a comma. Commas also separate the components of constant vectors and the metadata of
/// instructions.
fn operands_of(text: &str) -> Option<[&str; 2]> {
    let (mut depth, mut parts, mut start) = (0, Vec::new(), 0);
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    Some([*parts.first()?, *parts.get(1)?])
}

/// A function that divides vectors, component by component.
fn of_vectors(size: usize) -> String {
    let ty = format!("<{size} x float>");
    let mut out = format!("define internal {ty} @quotient_{size}({ty} %a, {ty} %b) alwaysinline {{\n");
    let mut whole = "poison".to_owned();
    for i in 0..size {
        writeln!(out, "  %a{i} = extractelement {ty} %a, i32 {i}\n  %b{i} = extractelement {ty} %b, i32 {i}").unwrap();
        writeln!(out, "  %q{i} = call float @machine_quotient(float %a{i}, float %b{i})").unwrap();
        writeln!(out, "  %v{i} = insertelement {ty} {whole}, float %q{i}, i32 {i}").unwrap();
        whole = format!("%v{i}");
    }
    writeln!(out, "  ret {ty} {whole}\n}}").unwrap();
    out
}

#[test]
fn divisions_of_floats_become_calls() {
    let code = "  %q = fdiv fast float %a, 2.0e+00\n  %v = fdiv <3 x float> <float 1.0, float 2.0, float 3.0>, %b, !x !1\n  \
                %h = fdiv half %c, %d\n";
    let made = by_the_machine(code).unwrap();
    for wanted in [
        "  %q = call float @machine_quotient(float %a, float 2.0e+00)\n",
        "  %v = call <3 x float> @quotient_3(<3 x float> <float 1.0, float 2.0, float 3.0>, <3 x float> %b)\n",
        "  %h = fdiv half %c, %d\n",
    ] {
        assert!(made.contains(wanted), "{wanted}{made}");
    }
}
