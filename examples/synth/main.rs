//! Writes a GGUF file of GLM-4.7-Flash's shape with random weights, to repeat measurements without the real weights of
//! 17 GB: speed depends only on the shape. The text of such a model is noise.
//!
//! `cargo run --release --example synth -- glm.gguf [--layers 47] [--mtp] [--type q4_k]`

#[path = "../../tests/common/gguf_writer.rs"]
mod gguf_writer;
mod shape;
mod write;

use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use wglm_engine::quant;
use wglm_engine::quant::Quant;

/// Writes a GGUF file of GLM-4.7-Flash's shape with random weights.
#[derive(Parser)]
struct Arguments {
    /// The file to write: 17.2 GB with all layers
    file: PathBuf,
    /// Layers, at least the dense one and one of experts
    #[arg(long, value_name = "N", default_value_t = 47, value_parser = clap::value_parser!(u64).range(2..=1000))]
    layers: u64,
    /// Add a multi-token-prediction block
    #[arg(long)]
    mtp: bool,
    /// One format for all matrices instead of the formats of a Q4_0 file, except for routers and matrices whose rows
    /// are not whole blocks of it
    #[arg(long = "type", value_name = "TYPE", value_parser = format)]
    ty: Option<&'static Quant>,
}

fn format(name: &str) -> Result<&'static Quant, String> {
    quant::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = quant::QUANTS.iter().map(|quant| quant.name).collect();
        format!("expected one of {}", known.join(", "))
    })
}

fn main() -> anyhow::Result<()> {
    let Arguments { file, layers, mtp, ty } = Arguments::parse();
    let start = Instant::now();
    let bytes = write::write(&file, &shape::Shape { mtp, ty, ..shape::Shape::glm(layers) })? as f64 / 1e9;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(std::io::stdout(), "{}: {bytes:.2} GB in {seconds:.1} s", file.display())?;
    Ok(())
}
