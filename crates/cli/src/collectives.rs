//! `elinvar collectives`: the time of collectives by the alpha-beta model, beside measured or simulated times.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use elinvar::{
    Algorithm, Buffer, Collective, Communicator, Device, Error, HostAccess, LinkCost, Network, Operation,
    Reduction, Stream,
};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::report::{median, print_json, print_table, say, time_text};

/// Predict the time of collectives, and compare it with measured or simulated times
///
/// The model has a latency and a bandwidth for each link, and a rate of reductions. They come from a file, or from transfers between the first two devices.
#[derive(Args)]
#[command(after_help = "\
The file describes a network (link * * BYTES_PER_S SECONDS; group SIZE BYTES_PER_S SECONDS; link FROM TO BYTES_PER_S SECONDS;
reduce BYTES_PER_S), or is what `elinvar devices --topology --measure --json` prints. Predictions follow each message on its link.

Examples:
  elinvar collectives --network cluster.network
  elinvar devices --topology --measure --json > links.json; elinvar collectives --network links.json
  ELINVAR_CPU_DEVICES=4 elinvar collectives --measure
  elinvar collectives --network cluster.network --simulate 64 --bytes 4096 --json")]
pub struct Collectives {
    /// Links of the network
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// Numbers of members
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 8, 16, 64, 256, 1024],
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    members: Vec<u32>,
    /// Bytes of each member's data: of a whole all-reduce, broadcast or reduce, and of all parts together in the others
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [4096, 1 << 20, 64 << 20])]
    bytes: Vec<usize>,
    /// Measure on the devices of the fastest kind
    #[arg(long, conflicts_with_all = ["members", "simulate"])]
    measure: bool,
    /// Simulate on the network, with N members in this process
    #[arg(long, value_name = "N", requires = "network", conflicts_with = "members",
          value_parser = clap::value_parser!(u32).range(2..=1024))]
    simulate: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const REDUCTION: Reduction = Reduction::Sum;
const KINDS: [Collective; 9] = [
    Collective::AllReduce { reduction: REDUCTION },
    Collective::Broadcast { root: 0 },
    Collective::Reduce { root: 0, reduction: REDUCTION },
    Collective::AllGather,
    Collective::ReduceScatter { reduction: REDUCTION },
    Collective::AllToAll,
    Collective::Gather { root: 0 },
    Collective::Scatter { root: 0 },
    Collective::Barrier,
];
const ALGORITHMS: [Algorithm; 5] =
    [Algorithm::Ring, Algorithm::Chain, Algorithm::Tree, Algorithm::Root, Algorithm::Dissemination];

/// What the model is fed with.
struct Parameters {
    network: Network,
    /// Seconds of an operation that sends no message.
    overhead: f64,
    /// Where they are from.
    source: String,
}

/// One row: a collective of some members and bytes by an algorithm.
struct Row {
    collective: Collective,
    algorithm: Algorithm,
    members: u32,
    bytes: usize,
    predicted: f64,
    /// Measured or simulated.
    observed: Option<f64>,
}

impl Collectives {
    pub fn run(self) -> Result<()> {
        let all = Device::all()?;
        let kind = all.first().map(Device::kind);
        let devices: Vec<Device> = all.into_iter().filter(|device| Some(device.kind()) == kind).collect();
        let parameters = match &self.network {
            Some(path) => from_file(path)?,
            None => calibrated(&devices, self.bytes.iter().copied().max().unwrap_or(0).max(1 << 20))?,
        };
        let observed = if self.measure { "measured" } else { "simulated" };
        let rows = match (self.measure, self.simulate) {
            (true, _) => self.measured(&parameters, &devices)?,
            (_, Some(size)) => self.simulated(&parameters, size)?,
            _ => self.predicted(&parameters),
        };
        if self.json {
            return print_json(&as_json(&parameters, &rows, observed));
        }
        self.print(&parameters, &rows, observed)
    }

    /// Every algorithm that computes the collective.
    fn predicted(&self, parameters: &Parameters) -> Vec<Row> {
        let mut rows = Vec::new();
        for (collective, bytes) in self.cases() {
            for algorithm in ALGORITHMS {
                let row = |members: &u32| row(parameters, collective, algorithm, *members, bytes, None);
                rows.extend(self.members.iter().filter_map(row));
            }
        }
        rows
    }

    /// The collectives with their bytes; a barrier has none.
    fn cases(&self) -> Vec<(Collective, usize)> {
        let cases = |collective: Collective| {
            let bytes = if collective == Collective::Barrier { vec![0] } else { self.bytes.clone() };
            bytes.into_iter().map(move |bytes| (collective, bytes))
        };
        KINDS.into_iter().flat_map(cases).collect()
    }

    fn measured(&self, parameters: &Parameters, devices: &[Device]) -> Result<Vec<Row>> {
        expect_several(devices)?;
        let mut sizes = vec![2, 4, devices.len()];
        sizes.retain(|size| *size <= devices.len());
        sizes.dedup();
        let mut rows = Vec::new();
        for size in sizes {
            let members = Communicator::all(&devices[..size])?;
            for (collective, bytes) in self.cases() {
                let mut group = Group::new(&members, collective, bytes)?;
                group.run()?;
                let times = (0..15).map(|_| group.run()).collect::<Result<Vec<_>>>()?;
                let seconds = median(times) as f64 / 1e9;
                rows.extend(usual(parameters, collective, size as u32, bytes, Some(seconds)));
            }
        }
        Ok(rows)
    }

    fn simulated(&self, parameters: &Parameters, size: u32) -> Result<Vec<Row>> {
        let devices = vec![Device::cpu()?; size as usize];
        let mut rows = Vec::new();
        for (collective, bytes) in self.cases() {
            let members = Communicator::all_on(&devices, parameters.network.clone())?;
            Group::new(&members, collective, bytes)?.run()?;
            let times = members.iter().filter_map(Communicator::simulated_time);
            let last = times.max().unwrap_or_default().as_secs_f64();
            rows.extend(usual(parameters, collective, size, bytes, Some(last)));
        }
        Ok(rows)
    }

    fn print(&self, parameters: &Parameters, rows: &[Row], observed: &str) -> Result<()> {
        let overhead = time_text((parameters.overhead * 1e9) as u64);
        say(format_args!("{}; {overhead} for an operation without messages\n", parameters.source))?;
        if rows.iter().any(|row| row.observed.is_some()) {
            let cells = |row: &Row| {
                let time = row.observed.unwrap_or(0.0);
                vec![
                    row.collective.name().to_owned(),
                    row.algorithm.name().to_owned(),
                    row.members.to_string(),
                    row.bytes.to_string(),
                    seconds_text(row.predicted),
                    seconds_text(time),
                    format!("{:.2}", time / row.predicted),
                ]
            };
            let head = ["collective", "algorithm", "members", "bytes", "predicted", observed, "ratio"];
            return print_table(&head, &rows.iter().map(cells).collect::<Vec<_>>());
        }
        let mut head = vec!["collective".to_owned(), "algorithm".into(), "bytes".into()];
        head.extend(self.members.iter().map(|members| format!("n = {members}")));
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let line = |rows: &[Row]| {
            let first = &rows[0];
            let names =
                [first.collective.name().to_owned(), first.algorithm.name().into(), first.bytes.to_string()];
            names.into_iter().chain(rows.iter().map(|row| seconds_text(row.predicted))).collect()
        };
        let table: Vec<Vec<String>> = rows.chunks(self.members.len()).map(line).collect();
        print_table(&head, &table)
    }
}

fn seconds_text(seconds: f64) -> String {
    time_text((seconds * 1e9).round() as u64)
}

/// Bytes of a part; see [`Collectives::bytes`].
fn part(collective: Collective, members: u32, bytes: usize) -> usize {
    match collective {
        Collective::AllReduce { .. } | Collective::Broadcast { .. } | Collective::Reduce { .. } => bytes,
        Collective::Barrier => 0,
        _ => (bytes / members as usize / 4 * 4).max(4),
    }
}

fn row(
    parameters: &Parameters,
    collective: Collective,
    algorithm: Algorithm,
    members: u32,
    bytes: usize,
    observed: Option<f64>,
) -> Option<Row> {
    let network = &parameters.network;
    let part = part(collective, members, bytes);
    let seconds = algorithm.seconds_on(collective, members, part, network)?;
    let predicted = parameters.overhead + seconds;
    Some(Row { collective, algorithm, members, bytes, predicted, observed })
}

/// By the algorithm that the ring uses.
fn usual(
    parameters: &Parameters,
    collective: Collective,
    members: u32,
    bytes: usize,
    observed: Option<f64>,
) -> Option<Row> {
    let algorithm = Algorithm::of(collective, members, part(collective, members, bytes));
    row(parameters, collective, algorithm, members, bytes, observed)
}

fn as_json(parameters: &Parameters, rows: &[Row], observed: &str) -> Value {
    let row = |row: &Row| {
        let mut json = json!({
            "collective": row.collective.name(),
            "algorithm": row.algorithm.name(),
            "members": row.members,
            "bytes": row.bytes,
            "predicted_s": row.predicted,
        });
        if let Some(seconds) = row.observed {
            json[format!("{observed}_s")] = seconds.into();
        }
        json
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    json!({ "parameters": parameters.source, "overhead_s": parameters.overhead, "results": rows })
}

/// # Errors
/// `Unsupported` with fewer than two devices.
fn expect_several(devices: &[Device]) -> Result<()> {
    match devices.len() {
        0 | 1 => Err(Error::unsupported(
            "there is one device only; `ELINVAR_CPU_DEVICES=4` divides the CPU into four, and --network FILE predicts without devices",
        )
        .into()),
        _ => Ok(()),
    }
}

fn from_file(path: &std::path::Path) -> Result<Parameters> {
    let failed = |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let network = match text.trim_start().starts_with('{') {
        true => {
            let json: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
            of_topology(&json).map_err(|error| failed(&error))?
        }
        false => Network::parse(&text).map_err(|error| failed(&error))?,
    };
    Ok(Parameters { network, overhead: 0.0, source: format!("links of {}", path.display()) })
}

/// The links of a measured topology; between devices beyond it, the slowest of them.
fn of_topology(json: &Value) -> std::result::Result<Network, String> {
    let list = |name: &str| json[name].as_array().cloned().unwrap_or_default();
    let devices = list("devices");
    let rank = |name: &Value| devices.iter().position(|device| device["device"] == *name);
    let mut links = Vec::new();
    for pair in list("pairs") {
        let (from, to) = (rank(&pair["from"]), rank(&pair["to"]));
        let rates = (pair["measured_bytes_per_s"].as_f64(), pair["measured_latency_s"].as_f64());
        if let ((Some(from), Some(to)), (Some(bandwidth), Some(latency))) = ((from, to), rates) {
            links.push((from as u32, to as u32, LinkCost { latency, bandwidth }));
        }
    }
    let slowest = links.iter().map(|(_, _, link)| *link).reduce(|one, other| LinkCost {
        latency: one.latency.max(other.latency),
        bandwidth: one.bandwidth.min(other.bandwidth),
    });
    let slowest = slowest.ok_or("no measured pairs: use `elinvar devices --topology --measure --json`")?;
    let text = |error: Error| error.to_string();
    let mut network = Network::uniform(slowest).map_err(text)?;
    for (from, to, link) in links {
        network.set(from, to, link).map_err(text)?;
    }
    Ok(network)
}

/// From operations of one and of two members on these devices: what a member alone needs is the overhead, and transfers between two give the link.
fn calibrated(devices: &[Device], bytes: usize) -> Result<Parameters> {
    expect_several(devices)?;
    let time = |size: usize, collective: Collective, bytes: usize| -> Result<f64> {
        let members = Communicator::all(&devices[..size])?;
        let mut group = Group::new(&members, collective, bytes)?;
        group.run()?;
        let times = (0..31).map(|_| group.run()).collect::<Result<Vec<_>>>()?;
        Ok(median(times) as f64 / 1e9)
    };
    let overhead = time(1, Collective::AllGather, 4)?;
    let send = Collective::Send { to: 1 };
    let (small, large) = (time(2, send, 4)?, time(2, send, bytes)?);
    // On a busy machine the small one may take longer.
    let transfer = |time: f64| if time > small { time - small } else { time };
    let bandwidth = bytes as f64 / transfer(large);
    let latency = (small - overhead).max(1e-9);
    let reduce = time(2, Collective::Reduce { root: 0, reduction: REDUCTION }, bytes)?;
    // The chain takes the longer of transfer and reduction for all but one segment.
    let reduction = bytes as f64 / transfer(reduce);
    let text = format!("link * * {bandwidth} {latency}\nreduce {reduction}");
    let source = format!(
        "measured between two devices: {:.2} GB/s, {}; reduces {:.2} GB/s",
        bandwidth / 1e9,
        seconds_text(latency),
        reduction / 1e9
    );
    Ok(Parameters { network: Network::parse(&text)?, overhead, source })
}

/// Members with memory for a collective of `f32`.
struct Group<'m> {
    members: &'m [Communicator],
    collective: Collective,
    streams: Vec<Stream>,
    sources: Vec<Option<Buffer<f32>>>,
    targets: Vec<Option<Buffer<f32>>>,
}

impl<'m> Group<'m> {
    fn new(members: &'m [Communicator], collective: Collective, bytes: usize) -> Result<Self> {
        let size = members.len() as u32;
        let count = part(collective, size, bytes) / 4;
        let mut group =
            Self { members, collective, streams: Vec::new(), sources: Vec::new(), targets: Vec::new() };
        for member in members {
            let device = member.device();
            // The other side of a transfer receives.
            let own = match (collective, member.rank()) {
                (Collective::Send { to }, rank) if rank == to => Collective::Receive { from: 0 },
                _ => collective,
            };
            let (of_source, of_target) = own.parts(member.rank(), size);
            let buffer = |parts: u32| match parts {
                0 => Ok(None),
                parts => device.buffer_for(count * parts as usize, HostAccess::Never).map(Some),
            };
            group.streams.push(device.stream()?);
            let takes_source = !matches!(own, Collective::Broadcast { .. });
            group.sources.push(if takes_source { buffer(of_source)? } else { None });
            group.targets.push(buffer(of_target)?);
        }
        Ok(group)
    }

    /// Runs it once. Returns the nanoseconds until all members have ended.
    fn run(&mut self) -> Result<u64> {
        let begin = Instant::now();
        let mut pending = Vec::new();
        let sides = self.sources.iter().zip(&mut self.targets);
        for ((member, stream), (source, target)) in self.members.iter().zip(&self.streams).zip(sides) {
            let operation = operation(self.collective, source.as_ref(), target.as_mut());
            pending.extend(operation.map(|operation| stream.collective(member, operation)).transpose()?);
        }
        pending.iter().try_for_each(|done| done.wait().map(drop))?;
        Ok(begin.elapsed().as_nanos() as u64)
    }
}

/// The operation of one member; `None` if a side is missing.
fn operation<'a>(
    collective: Collective,
    source: Option<&'a Buffer<f32>>,
    target: Option<&'a mut Buffer<f32>>,
) -> Option<Operation<'a>> {
    Some(match collective {
        Collective::Broadcast { root } => Operation::broadcast(root, target?),
        Collective::Reduce { root, reduction } => {
            Operation::reduce(root, reduction, source?, target.map(Into::into))
        }
        Collective::AllReduce { reduction } => Operation::all_reduce(reduction, source?, target?),
        Collective::AllGather => Operation::all_gather(source?, target?),
        Collective::ReduceScatter { reduction } => Operation::reduce_scatter(reduction, source?, target?),
        Collective::AllToAll => Operation::all_to_all(source?, target?),
        Collective::Gather { root } => Operation::gather(root, source?, target.map(Into::into)),
        Collective::Scatter { root } => Operation::scatter(root, source.map(Into::into), target?),
        Collective::Send { to } => match (source, target) {
            (Some(source), _) => Operation::send(to, source),
            (None, target) => Operation::receive(0, target?),
        },
        Collective::Receive { from } => Operation::receive(from, target?),
        Collective::Barrier => Operation::barrier(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_topology_becomes_a_network() {
        let json = json!({
            "devices": [{ "device": "cuda:0" }, { "device": "cuda:1" }],
            "pairs": [
                { "from": "cuda:0", "to": "cuda:1", "measured_bytes_per_s": 2e11, "measured_latency_s": 1e-5 },
                { "from": "cuda:1", "to": "cuda:0", "measured_bytes_per_s": 1e11, "measured_latency_s": 2e-5 },
            ],
        });
        let network = of_topology(&json).unwrap();
        assert_eq!(network.link(0, 1), LinkCost { latency: 1e-5, bandwidth: 2e11 });
        assert_eq!(network.link(5, 6), LinkCost { latency: 2e-5, bandwidth: 1e11 });
        let none = json!({ "devices": [], "pairs": [{ "measured_bytes_per_s": null }] });
        assert!(of_topology(&none).unwrap_err().contains("no measured pairs"));
    }
}
