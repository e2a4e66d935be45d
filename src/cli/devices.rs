//! `devices`: the adapters and what matters about them.

use super::args::GpuArgs;
use super::output;
use wglm::Gpu;
use wglm::gpu::{AdapterReport, adapters};
use wglm::model::usual_arithmetic;

pub fn devices(args: &GpuArgs) -> anyhow::Result<()> {
    let options = args.options();
    let found = adapters(&options)?;
    let wanted = options.adapter.as_ref().map(|name| name.to_lowercase());
    let fits = |a: &AdapterReport| wanted.as_ref().is_none_or(|name| a.name.to_lowercase().contains(name));
    let chosen = found.iter().position(fits);
    if chosen.is_none() {
        Gpu::open(&options)?; // says what is missing, and what to do about it
    }
    output::lines(found.iter().enumerate().map(|(index, adapter)| describe(adapter, Some(index) == chosen)))?;
    Ok(())
}

fn describe(adapter: &AdapterReport, chosen: bool) -> String {
    let yes = |there: bool| if there { "yes" } else { "no" };
    let subgroup = adapter.subgroup.map_or("none".into(), |(least, most)| match least == most {
        true => format!("of {least}"),
        false => format!("of {least} to {most}"),
    });
    let mark = if chosen { " (used unless another is asked for)" } else { "" };
    format!(
        "{}{mark}\n  backend           {} ({})\n  driver            {}\n  subgroups         {subgroup}\n  arithmetic        {}\n  \
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
