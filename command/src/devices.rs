//! The command `devices`: lists the adapters and their properties.

use super::args::DevicesArgs;
use super::output;
use serde_json::{Value, json};
use wglm_engine::instruments::usual_arithmetic;
use wglm_engine::{AdapterReport, Gpu, GpuOptions, Matrices, adapters};

pub fn devices(args: &DevicesArgs) -> anyhow::Result<()> {
    let options = args.adapter.options()?;
    let found = adapters(&options);
    let chosen = chosen(&found, &options)?;
    if args.json {
        let all = found.iter().enumerate().map(|(index, adapter)| as_json(adapter, index == chosen));
        return output::lines([serde_json::to_string_pretty(&all.collect::<Vec<Value>>())?]);
    }
    list(&options)
}

pub fn list(options: &GpuOptions) -> anyhow::Result<()> {
    let found = adapters(options);
    let chosen = chosen(&found, options)?;
    output::lines(found.iter().enumerate().map(|(index, adapter)| describe(adapter, index == chosen)))
}

/// The index of the adapter that commands would use.
fn chosen(found: &[AdapterReport], options: &GpuOptions) -> anyhow::Result<usize> {
    let wanted = options.adapter.as_ref().map(|name| name.to_lowercase());
    let fits = |a: &AdapterReport| wanted.as_ref().is_none_or(|name| a.name.to_lowercase().contains(name));
    match found.iter().position(fits) {
        Some(chosen) => Ok(chosen),
        None => {
            Gpu::open(options)?; // returns an error that says what is missing
            anyhow::bail!("a GPU appeared while they were being listed; try again")
        }
    }
}

/// The size of the cooperative matrices that kernels can use, for people.
pub fn size_of_matrices(matrices: Matrices) -> String {
    rows_of(matrices).map_or("none".into(), |size| format!("{size} x {size}"))
}

/// The rows and columns of cooperative matrices; `None` if there are none.
fn rows_of(matrices: Matrices) -> Option<u32> {
    match matrices {
        Matrices::None => None,
        Matrices::Eight => Some(8),
        Matrices::Sixteen => Some(16),
    }
}

fn describe(adapter: &AdapterReport, chosen: bool) -> String {
    let yes = |there: bool| if there { "yes" } else { "no" };
    let subgroup = adapter.subgroup.map_or("none".into(), |(least, most)| match least == most {
        true => format!("of {least}"),
        false => format!("of {least} to {most}"),
    });
    let matrices = size_of_matrices(adapter.matrices);
    let memory = adapter.memory.map_or("unknown".into(), output::bytes);
    let mark = if chosen { " (default)" } else { "" };
    format!(
        "{}{mark}\n  backend           {} ({})\n  driver            {}\n  memory            {memory}\n  \
         subgroups         {subgroup}\n  matrices          {matrices}\n  arithmetic        {}\n  \
         f16 in shaders    {}\n  timestamps        {}\n  largest binding   {}\n  largest buffer    {}\n  \
         workgroup memory  {}\n  storage buffers   {}",
        adapter.name,
        adapter.backend,
        adapter.kind,
        adapter.driver,
        usual_arithmetic(adapter).name(),
        yes(adapter.f16),
        yes(adapter.timestamps),
        output::bytes(adapter.max_binding),
        output::bytes(adapter.max_buffer),
        output::bytes(adapter.max_workgroup_bytes.into()),
        adapter.max_storage_buffers,
    )
}

/// The adapter as JSON. Sizes are in bytes.
fn as_json(adapter: &AdapterReport, chosen: bool) -> Value {
    json!({
        "name": adapter.name,
        "default": chosen,
        "backend": adapter.backend,
        "kind": adapter.kind,
        "driver": adapter.driver,
        "memory": adapter.memory,
        "subgroup_min": adapter.subgroup.map(|(least, _)| least),
        "subgroup_max": adapter.subgroup.map(|(_, most)| most),
        "matrices": rows_of(adapter.matrices),
        "arithmetic": usual_arithmetic(adapter).name(),
        "shader_f16": adapter.f16,
        "timestamps": adapter.timestamps,
        "max_binding": adapter.max_binding,
        "max_buffer": adapter.max_buffer,
        "max_workgroup_memory": adapter.max_workgroup_bytes,
        "max_storage_buffers": adapter.max_storage_buffers,
    })
}
