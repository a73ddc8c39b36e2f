//! [`Readings`]: what a device's hardware reports about itself, and [`Energy`], the counter with which the energy of work is measured.
//!
//! A [`Quantity`] has the name, unit and attributes of its metric. Names without the prefix `elinvar.` and their units are those of OpenTelemetry's
//! semantic conventions (<https://opentelemetry.io/docs/specs/semconv/hardware/>, `…/system/`). A quantity that the device should have and that
//! cannot be read is in the list with the reason; it never has a value that was not measured.

use crate::{Error, Result};

/// A quantity of one part of the hardware.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What was read.
    pub quantity: Quantity,
    /// Values of [`Quantity::attributes`]: which part it was read of.
    pub attributes: Vec<String>,
    /// The value in [`Quantity::unit`], finite.
    ///
    /// # Errors
    /// `Unsupported` with the reason why it is not measured.
    pub value: Result<f64>,
}

/// Readings of one moment.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    /// In the order of [`Quantity::ALL`].
    pub list: Vec<Reading>,
}

impl Readings {
    /// Adds a reading. A value that is not finite becomes an error.
    pub fn add(&mut self, quantity: Quantity, attributes: &[&str], value: Result<f64>) {
        debug_assert_eq!(attributes.len(), quantity.attributes().len(), "{quantity:?}");
        let value = value.and_then(|value| match value.is_finite() {
            true => Ok(value),
            false => Err(Error::unsupported(format!("{}: the source reports {value}", quantity.name()))),
        });
        let attributes = attributes.iter().map(|value| (*value).to_owned()).collect();
        let behind = self.list.partition_point(|reading| reading.quantity <= quantity);
        self.list.insert(behind, Reading { quantity, attributes, value });
    }

    /// The readings of a quantity, one for each part.
    pub fn of(&self, quantity: Quantity) -> impl Iterator<Item = &Reading> {
        self.list.iter().filter(move |reading| reading.quantity == quantity)
    }

    /// The value of a quantity with these attributes.
    ///
    /// # Errors
    /// `Unsupported` if it is not measured, with the reason.
    pub fn value(&self, quantity: Quantity, attributes: &[&str]) -> Result<f64> {
        let found = self.of(quantity).find(|reading| reading.attributes == attributes);
        let none =
            || Error::unsupported(format!("the device has no `{}` of {attributes:?}", quantity.name()));
        found.map_or_else(|| Err(none()), |reading| reading.value.clone())
    }
}

/// Lookups in a persistent cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheLookups {
    /// Those that found an entry.
    pub hits: u64,
    /// Those that did not.
    pub misses: u64,
}

/// The energy that a device has used, as a counter that only grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Energy {
    /// Energy in joules since an arbitrary moment.
    pub joules: f64,
    /// Smallest difference that the counter shows, in joules.
    pub resolution: f64,
    /// Number of counters of the hardware that this is the sum of, each updated at its own moments.
    pub counters: u32,
    /// Upper limit of the power in watts, if the hardware has one.
    pub power_limit: Option<f64>,
}

macro_rules! quantities {
    ($($(#[doc = $meaning:literal])+ $variant:ident = $name:literal, $counter:literal, $unit:literal, $attributes:expr;)*) => {
        /// A physical quantity or a count, with the name of its metric.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Quantity {
            $($(#[doc = $meaning])+ $variant,)*
        }

        impl Quantity {
            /// All quantities.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Name of the metric.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Unit, in UCUM's notation: `J`, `W`, `Cel`, `Hz`, `By`, `By/s`, `s`, `1`, or a count such as `{error}`.
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$variant => $unit,)* }
            }

            /// Whether the value only grows, from an arbitrary start; otherwise it is valid now.
            pub const fn is_counter(self) -> bool {
                match self { $(Self::$variant => $counter,)* }
            }

            /// Names of the attributes that tell the parts of a device apart.
            pub const fn attributes(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &$attributes,)* }
            }

            /// Meaning, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),+).trim_ascii_start(),)* }
            }
        }
    };
}

quantities! {
    /// Energy that the part has used
    Energy = "hw.energy", true, "J", ["hw.name"];
    /// Power of the part, averaged by the hardware
    Power = "hw.power", false, "W", ["hw.name"];
    /// Power above which the hardware throttles
    PowerLimit = "elinvar.hw.power.limit", false, "W", ["hw.name"];
    /// Temperature of the part
    Temperature = "hw.temperature", false, "Cel", ["hw.name"];
    /// Temperature at which clocks are lowered (`throttled`), at least halved (`slowdown`), or the device is shut down (`shutdown`)
    TemperatureLimit = "hw.temperature.limit", false, "Cel", ["hw.limit_type"];
    /// Errors since the driver was loaded (`volatile`) or ever (`aggregate`), and replayed PCIe packets
    Errors = "hw.errors", true, "{error}", ["error.type"];
    /// Share of time in which a kernel ran on the GPU, over the driver's sampling period of 1/6 s to 1 s
    GpuUtilization = "hw.gpu.utilization", false, "1", [];
    /// Share of time in which the GPU's memory was read or written, over the same period
    MemoryInterfaceUtilization = "elinvar.hw.gpu.memory_interface.utilization", false, "1", [];
    /// Memory of the GPU in use, by all processes
    GpuMemoryUsage = "hw.gpu.memory.usage", false, "By", [];
    /// Memory of the GPU
    GpuMemoryLimit = "hw.gpu.memory.limit", false, "By", [];
    /// Clock of a domain of the GPU: `sm` or `memory`
    GpuSpeed = "elinvar.hw.gpu.speed", false, "Hz", ["hw.name"];
    /// Maximum clock of the domain
    GpuSpeedLimit = "elinvar.hw.gpu.speed.limit", false, "Hz", ["hw.name"];
    /// 1 if the clocks are held down for this reason, otherwise 0
    GpuThrottled = "elinvar.hw.gpu.throttled", false, "1", ["reason"];
    /// 1 if the link is up, otherwise 0
    NvLinkUp = "elinvar.hw.nvlink.up", false, "1", ["link"];
    /// Version of the link's protocol
    NvLinkVersion = "elinvar.hw.nvlink.version", false, "1", ["link"];
    /// Speed of each link, in each direction
    NvLinkSpeed = "elinvar.hw.nvlink.speed", false, "By/s", [];
    /// Data that the link has carried
    NvLinkBytes = "elinvar.hw.nvlink.io", true, "By", ["link", "network.io.direction"];
    /// Errors of the link
    NvLinkErrors = "elinvar.hw.nvlink.errors", true, "{error}", ["link", "error.type"];
    /// Generation of PCI Express at which the link runs
    PcieGeneration = "elinvar.hw.pcie.generation", false, "1", [];
    /// Highest generation that device and slot have
    PcieGenerationLimit = "elinvar.hw.pcie.generation.limit", false, "1", [];
    /// Lanes of the link in use
    PcieWidth = "elinvar.hw.pcie.width", false, "{lane}", [];
    /// Lanes that device and slot have
    PcieWidthLimit = "elinvar.hw.pcie.width.limit", false, "{lane}", [];
    /// Bytes that the GPU has transmitted and received over PCI Express
    PcieBytes = "hw.gpu.io", true, "By", ["network.io.direction"];
    /// Throughput of PCI Express while the other readings were taken, some milliseconds
    PcieThroughput = "elinvar.hw.pcie.throughput", false, "By/s", ["network.io.direction"];
    /// Mean clock of the processors
    CpuSpeed = "hw.cpu.speed", false, "Hz", [];
    /// Highest clock of a processor
    CpuSpeedLimit = "hw.cpu.speed.limit", false, "Hz", [];
    /// Time of the machine's processors by what they did
    CpuTime = "system.cpu.time", true, "s", ["cpu.mode"];
    /// Processor time of this process
    ProcessCpuTime = "process.cpu.time", true, "s", ["cpu.mode"];
    /// Processor time of this process since `Device::count_events`, in nanoseconds
    ProcessTaskClock = "elinvar.process.task_clock", true, "s", [];
    /// Events of this process in user mode since then
    ProcessEvents = "elinvar.process.events", true, "{event}", ["event"];
    /// Memory of the machine
    SystemMemoryLimit = "system.memory.limit", false, "By", [];
    /// Memory of the machine that could be allocated without swapping
    SystemMemoryAvailable = "system.linux.memory.available", false, "By", [];
    /// Time that a worker thread of a CPU device has run (`running`), or was ready while other threads had its processor (`waiting`)
    WorkerTime = "elinvar.worker.time", true, "s", ["state", "worker"];
    /// Resident memory of this process
    ProcessMemory = "process.memory.usage", false, "By", [];
    /// Memory that the process's control group uses
    ContainerMemory = "container.memory.usage", false, "By", [];
    /// Least memory limit of the process's control group and the groups above it
    ContainerMemoryLimit = "elinvar.container.memory.limit", false, "By", [];
    /// Least processor limit of the process's control group and the groups above it
    ContainerCpuLimit = "elinvar.container.cpu.limit", false, "{cpu}", [];
    /// Time in which some or all (`full`) processes of the machine waited for the resource
    Stalled = "elinvar.pressure.stalled", true, "s", ["resource", "share"];
    /// Share of the last 10 seconds in which they waited
    StalledRatio = "elinvar.pressure.ratio", false, "1", ["resource", "share"];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_in_the_order_of_the_table_and_found_by_their_part() {
        let mut readings = Readings::default();
        readings.add(Quantity::PcieWidth, &[], Ok(16.0));
        readings.add(Quantity::Power, &["package-0"], Ok(90.5));
        readings.add(Quantity::Power, &["dram-0"], Err(Error::unsupported("no such domain")));
        readings.add(Quantity::Energy, &["package-0"], Ok(f64::NAN));
        let order: Vec<_> = readings.list.iter().map(|reading| reading.quantity).collect();
        assert_eq!(order, [Quantity::Energy, Quantity::Power, Quantity::Power, Quantity::PcieWidth]);
        assert_eq!(readings.value(Quantity::Power, &["package-0"]).ok(), Some(90.5));
        let refused = |quantity, part: &[&str]| readings.value(quantity, part).unwrap_err().to_string();
        assert_eq!(refused(Quantity::Power, &["dram-0"]), "unsupported: no such domain");
        assert_eq!(
            refused(Quantity::Energy, &["package-0"]),
            "unsupported: hw.energy: the source reports NaN"
        );
        let none = "unsupported: the device has no `hw.power` of [\"package-1\"]";
        assert_eq!(refused(Quantity::Power, &["package-1"]), none);
    }

    #[test]
    fn names_are_unique_and_follow_the_conventions() {
        let mut names: Vec<_> = Quantity::ALL.iter().map(|quantity| quantity.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Quantity::ALL.len());
        for quantity in Quantity::ALL {
            let meaning = quantity.meaning();
            assert!(
                meaning.starts_with(|first: char| first.is_ascii_uppercase() || first == '1'),
                "{meaning}"
            );
        }
    }
}
