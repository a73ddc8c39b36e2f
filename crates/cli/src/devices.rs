//! `elinvar devices`: devices that can run kernels, and the compiler.

use std::time::Instant;

use clap::Args;
use elinvar::{Caps, Device, Error, Place, Reading, Topology, TopologyDevice};
use elinvar_msl::Toolchain;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::report::{print_json, say, time_text};

/// List the available devices with their limits, and the compiler
#[derive(Args)]
#[command(
    after_help = "Examples:\n  elinvar devices\n  elinvar devices --json\n  elinvar devices --sensors\n  \
    ELINVAR_CPU_DEVICES=4 elinvar devices --topology --measure\n  \
    ELINVAR_CLANG=/opt/llvm/bin/clang elinvar devices"
)]
pub struct Devices {
    /// Read the sensors of each device: power, temperatures, clocks, memory, errors; with the reason for what is not measured
    #[arg(long)]
    sensors: bool,
    /// Print what connects each two devices, and the route of copies between them
    #[arg(long)]
    topology: bool,
    /// With --topology: measure bandwidth and latency of each pair
    #[arg(long, requires = "topology")]
    measure: bool,
    /// With --topology: print a graph for Graphviz
    #[arg(long, requires = "topology", conflicts_with = "json")]
    dot: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub fn run(self) -> Result<()> {
        if self.topology {
            return self.topology();
        }
        let devices = Device::all()?;
        let toolchain = Toolchain::find();
        if self.json {
            let devices: Vec<Value> = devices.iter().map(|device| self.json(device)).collect();
            let (absent, compiler) = (absent_json(), compiler_json(&toolchain));
            return print_json(&json!({ "devices": devices, "absent": absent, "compiler": compiler }));
        }
        for device in &devices {
            print_caps(device.caps())?;
            for (name, value) in device.details() {
                say(format_args!("  {name} {value}"))?;
            }
            if self.sensors {
                print_sensors(device)?;
            }
        }
        print_absent_and_compiler(&toolchain)
    }

    fn topology(&self) -> Result<()> {
        let mut topology = Topology::discover()?;
        if self.measure {
            topology.measure()?;
        }
        match (self.json, self.dot) {
            (true, _) => print_json(&topology_json(&topology)),
            (_, true) => say(topology.to_dot().trim_end()),
            _ => say(topology.to_string().trim_end()),
        }
    }

    fn json(&self, device: &Device) -> Value {
        let mut json = device_json(device);
        if self.sensors {
            let _counted = device.count_events();
            json["sensors"] = match device.readings() {
                Ok(readings) => readings.list.iter().map(reading_json).collect(),
                Err(error) => json!({ "unsupported": reason(&error) }),
            };
        }
        json
    }
}

fn topology_json(topology: &Topology) -> Value {
    let devices = topology.devices();
    let device = |device: &TopologyDevice| {
        let Place { numa_node, cpus, pci } = &device.place;
        json!({ "device": device.name, "name": device.device.name(), "numa_node": numa_node, "cpus": cpus, "pci": pci })
    };
    let pair = |(from, to): (usize, usize)| {
        let pair = topology.pair(from, to)?;
        let measured = pair.measured.as_ref();
        Some(json!({
            "from": devices[from].name,
            "to": devices[to].name,
            "link": pair.link.kind.to_string(),
            "access": pair.link.access,
            "atomics": pair.link.atomics,
            "route": pair.route.name(),
            "specified_bytes_per_s": pair.link.expected,
            "measured_bytes_per_s": measured.map(|measured| measured.bandwidth),
            "measured_latency_s": measured.map(|measured| measured.latency.as_secs_f64()),
        }))
    };
    let all = (0..devices.len()).flat_map(|from| (0..devices.len()).map(move |to| (from, to)));
    let pairs: Vec<Value> = all.filter_map(pair).collect();
    json!({ "devices": devices.iter().map(device).collect::<Vec<_>>(), "pairs": pairs })
}

/// Readings with a line each, then what is not measured, by reason.
fn print_sensors(device: &Device) -> Result<()> {
    // Where events are not counted, their readings have the reason.
    let _counted = device.count_events();
    let begin = Instant::now();
    let readings = match device.readings() {
        Ok(readings) => readings,
        Err(error) => return say(format_args!("  sensors  none\n    {}", reason(&error))),
    };
    say(format_args!("  sensors  read in {}", time_text(begin.elapsed().as_nanos() as u64)))?;
    let mut absent: Vec<(&str, Vec<String>)> = Vec::new();
    for reading in &readings.list {
        let name = format!("{} {}", reading.quantity.name(), reading.attributes.join(" "));
        let (name, unit) = (name.trim_end(), reading.quantity.unit());
        match &reading.value {
            Ok(value) => {
                // A millionth of the unit, without noise of the conversion.
                let value = (value * 1e6).round() / 1e6;
                say(format!("    {name}  {value} {}", if unit == "1" { "" } else { unit }).trim_end())?;
            }
            Err(error) => {
                let reason = reason(error);
                match absent.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, names)) => names.push(name.to_owned()),
                    None => absent.push((reason, vec![name.to_owned()])),
                }
            }
        }
    }
    for (reason, names) in absent {
        say(format_args!("    not measured: {reason}\n      {}", names.join(", ")))?;
    }
    Ok(())
}

fn reading_json(reading: &Reading) -> Value {
    let quantity = reading.quantity;
    let attributes: serde_json::Map<String, Value> = quantity
        .attributes()
        .iter()
        .zip(&reading.attributes)
        .map(|(name, value)| ((*name).to_owned(), value.as_str().into()))
        .collect();
    let mut json = json!({ "name": quantity.name(), "unit": quantity.unit(), "attributes": attributes });
    match &reading.value {
        Ok(value) => json["value"] = (*value).into(),
        Err(error) => json["unsupported"] = reason(error).into(),
    }
    json
}

/// The reason in an error.
fn reason(error: &Error) -> &str {
    match error {
        Error::Unsupported(reason) => reason,
        _ => "it cannot be read",
    }
}

/// Why backends have no device, and the compiler, or how to get one.
pub fn print_absent_and_compiler(toolchain: &Result<Toolchain, elinvar_msl::Error>) -> Result<()> {
    for (kind, reason) in Device::absent() {
        say(format_args!("{kind}  none\n  {reason}"))?;
    }
    match toolchain {
        Ok(found) => say(format_args!("compiler  {} ({})", found.path().display(), found.version())),
        Err(error) => say(format_args!("compiler  none\n  {}", error.to_string().replace('\n', "\n  "))),
    }
}

pub fn absent_json() -> Value {
    let absent = Device::absent().into_iter().map(|(kind, reason)| (kind.to_owned(), reason.into()));
    Value::Object(absent.collect())
}

pub fn compiler_json(toolchain: &Result<Toolchain, elinvar_msl::Error>) -> Value {
    match toolchain {
        Ok(found) => json!({ "path": found.path(), "version": found.version() }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

pub fn print_caps(caps: &Caps) -> Result<()> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    say(format_args!("{}  {}", caps.kind.name(), caps.name))?;
    let units = caps.limits.compute_units;
    match caps.limits.vector_bits {
        Some(bits) => say(format_args!("  {units} worker threads, vectors of {bits} bits")),
        None => say(format_args!("  {units} compute units")),
    }?;
    let unified = if caps.features.unified_memory { "shared with the host" } else { "its own" };
    let (total, buffer) = (gib(caps.limits.total_memory), gib(caps.limits.max_buffer_bytes));
    say(format_args!("  memory {total:.1} GiB, {unified}; buffers up to {buffer:.1} GiB"))?;
    say(format_args!(
        "  threadgroups up to {} threads ({}), {} bytes of threadgroup memory; simdgroups of {}",
        caps.limits.max_threads_per_threadgroup,
        caps.limits.max_threadgroup_size,
        caps.limits.max_threadgroup_memory,
        caps.limits.simdgroup_width
    ))?;
    match primitives(caps) {
        names if names.is_empty() => Ok(()),
        names => say(format_args!("  its vendor's library has {}", names.join(", "))),
    }
}

/// The vendor primitives of a device.
fn primitives(caps: &Caps) -> Vec<String> {
    caps.features.primitives.iter().map(|(kind, float)| format!("{} of {float}", kind.name())).collect()
}

fn device_json(device: &Device) -> Value {
    let caps = device.caps();
    let details: serde_json::Map<String, Value> =
        device.details().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    json!({
        "details": details,
        "name": caps.name,
        "kind": caps.kind.name(),
        "simdgroup_width": caps.limits.simdgroup_width,
        "max_threads_per_threadgroup": caps.limits.max_threads_per_threadgroup,
        "max_threadgroup_size": caps.limits.max_threadgroup_size.to_array(),
        "max_threadgroup_memory": caps.limits.max_threadgroup_memory,
        "max_buffer_bytes": caps.limits.max_buffer_bytes,
        "total_memory": caps.limits.total_memory,
        "working_set": caps.limits.working_set,
        "unified_memory": caps.features.unified_memory,
        "compute_units": caps.limits.compute_units,
        "priorities": caps.features.priorities,
        "vector_bits": caps.limits.vector_bits,
        "primitives": primitives(caps),
    })
}
