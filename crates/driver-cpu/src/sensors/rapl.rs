//! Energy of processor packages and their memory, by RAPL (running average power limit), through Linux's powercap class.
//!
//! Each domain is a folder `intel-rapl:P` or `intel-rapl:P:S`, on AMD processors too, with a counter in microjoules that starts again behind
//! `max_energy_range_uj`. Only `package` and `dram` domains count: `core` and `uncore` are parts of their package, `psys` contains packages.
//! Since CVE-2020-8694 the counters are readable by root only.

use std::time::Instant;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Energy, Error, Quantity, Readings, Result};

use super::files::{Root, shortened};

const CLASS: &str = "sys/class/powercap";
const MICROJOULE: f64 = 1e-6;

/// The domains, or why there is none.
pub(super) struct Rapl {
    root: Root,
    domains: Result<Vec<Domain>>,
}

struct Domain {
    /// The domain's name, behind that of its package if it is part of one: `package-0`, `package-0 dram`.
    name: String,
    folder: String,
    /// Power limit of the long term in watts, and the highest of all terms.
    limits: Option<(f64, f64)>,
    counter: Mutex<Counter>,
}

/// A counter that goes on where the hardware's starts again.
#[derive(Default)]
struct Counter {
    /// Microjoules since the first reading.
    total: u64,
    /// The hardware's last value, and when it was read.
    last: Option<(u64, Instant)>,
}

impl Counter {
    /// Takes a value of the hardware's counter, which ends at `range`, while the power is at most `most` watts.
    fn add(&mut self, value: u64, range: u64, most: Option<f64>, now: Instant) -> Result<u64> {
        if value > range {
            return Err(Error::unsupported(format!(
                "the counter has {value} µJ, beyond its range of {range} µJ"
            )));
        }
        if let Some((last, at)) = self.last.replace((value, now)) {
            let elapsed = now.saturating_duration_since(at);
            let bound = most.map_or(0.0, |watts| watts * elapsed.as_secs_f64());
            if bound >= range as f64 * MICROJOULE {
                return Err(Error::unsupported(format!(
                    "the counter was not read for {} s, in which it may have started again more than once",
                    elapsed.as_secs()
                )));
            }
            let used = value.checked_sub(last).unwrap_or_else(|| (range - last).saturating_add(value));
            self.total = self.total.saturating_add(used);
        }
        Ok(self.total)
    }
}

impl Domain {
    fn joules(&self, root: &Root) -> Result<f64> {
        // The counter is read under the lock, so that values arrive in order.
        let mut counter = self.counter.lock();
        let value = root.number(&format!("{}/energy_uj", self.folder))?;
        let range = root.number(&format!("{}/max_energy_range_uj", self.folder))?;
        let total = counter.add(value, range, self.limits.map(|(_, most)| most), Instant::now())?;
        Ok(total as f64 * MICROJOULE)
    }
}

impl Rapl {
    pub(super) fn new(root: &Root) -> Self {
        Self { root: root.clone(), domains: domains(root) }
    }

    /// Adds the readings. RAPL has no power of its own: it is the difference of two energies by the time between them.
    pub(super) fn read(&self, readings: &mut Readings) {
        let domains = match &self.domains {
            Ok(domains) => domains,
            Err(reason) => {
                for quantity in [Quantity::Energy, Quantity::Power, Quantity::PowerLimit] {
                    readings.add(quantity, &["cpu"], Err(reason.clone()));
                }
                return;
            }
        };
        let no_power = Error::unsupported(
            "RAPL counts energy only: power is the difference of two readings by their time",
        );
        readings.add(Quantity::Power, &["cpu"], Err(no_power));
        for domain in domains {
            readings.add(Quantity::Energy, &[&domain.name], domain.joules(&self.root));
            if let Some((long_term, _)) = domain.limits {
                readings.add(Quantity::PowerLimit, &[&domain.name], Ok(long_term));
            }
        }
    }

    /// The sum of all domains.
    pub(super) fn energy(&self) -> Result<Energy> {
        let domains = self.domains.as_ref().map_err(Clone::clone)?;
        let mut joules = 0.0;
        for domain in domains {
            joules += domain.joules(&self.root)?;
        }
        // A memory domain without a limit of its own is not bounded by its package's.
        let limits: Option<Vec<f64>> = domains.iter().map(|domain| Some(domain.limits?.1)).collect();
        let power_limit = limits.map(|limits| limits.iter().sum());
        let counters = u32::try_from(domains.len()).unwrap_or(u32::MAX);
        Ok(Energy { joules, resolution: f64::from(counters) * MICROJOULE, counters, power_limit })
    }
}

/// The domains that count.
fn domains(root: &Root) -> Result<Vec<Domain>> {
    let all = root.list(CLASS)?;
    let name = |folder: &str| root.text(&format!("{CLASS}/{folder}/name")).map(|name| name.trim().to_owned());
    let mut domains = Vec::new();
    for folder in &all {
        let Some(numbers) = folder.strip_prefix("intel-rapl:") else { continue };
        let own = name(folder)?;
        let name = match numbers.rsplit_once(':') {
            None if own.starts_with("package") => own,
            Some((package, _)) if own == "dram" => {
                format!("{} dram", name(&format!("intel-rapl:{package}"))?)
            }
            _ => continue,
        };
        let folder = format!("{CLASS}/{folder}");
        let limits = limits(root, &folder);
        domains.push(Domain { name: shortened(&name), folder, limits, counter: Mutex::default() });
    }
    match domains.is_empty() {
        true => Err(Error::unsupported(format!("`/{CLASS}` has no RAPL domain of a processor package"))),
        false => Ok(domains),
    }
}

/// The power limit of the long term and the highest one, in watts. A limit of 0 is not set.
fn limits(root: &Root, folder: &str) -> Option<(f64, f64)> {
    let terms = (0..).map_while(|term| {
        let term = format!("{folder}/constraint_{term}");
        let name = root.text(&format!("{term}_name")).ok()?;
        Some((name.trim().to_owned(), root.number(&format!("{term}_power_limit_uw")).ok()))
    });
    let set = terms.filter_map(|(name, limit)| Some((name, limit.filter(|limit| *limit > 0)? as f64 / 1e6)));
    let set: Vec<(String, f64)> = set.collect();
    let long_term = set.iter().find(|(name, _)| name == "long_term")?.1;
    Some((long_term, set.iter().map(|(_, limit)| *limit).fold(long_term, f64::max)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_counter_goes_on_where_the_hardware_starts_again() {
        let (range, begun) = (262_143_328_850, Instant::now());
        let mut counter = Counter::default();
        let mut add = |value, s| counter.add(value, range, Some(500.0), begun + Duration::from_secs(s));
        assert_eq!(add(range - 5, 0).ok(), Some(0), "where it begins is arbitrary");
        assert_eq!(add(range - 2, 1).ok(), Some(3));
        assert_eq!(add(10, 2).ok(), Some(15));
        assert_eq!(add(10, 3).ok(), Some(15));
        // 500 W for 524 s are as much as the range; 20 J on the hardware's counter may have been more.
        let lost = add(20, 3 + 525).unwrap_err().to_string();
        assert!(lost.contains("not read for 525 s"), "{lost}");
        assert_eq!(add(30, 530).ok(), Some(25), "it goes on from there");
        let beyond = add(range + 1, 531).unwrap_err().to_string();
        assert!(beyond.contains("beyond its range"), "{beyond}");
        assert_eq!(add(range, 532).ok(), Some(25 + range - 30), "a value beyond the range changes nothing");
        assert_eq!(add(0, 533).ok(), Some(25 + range - 30));
    }

    #[test]
    fn a_counter_of_the_largest_range_does_not_overflow() {
        let mut counter = Counter::default();
        let now = Instant::now();
        let values = [0, u64::MAX, 0, u64::MAX].map(|value| counter.add(value, u64::MAX, None, now).ok());
        assert_eq!(values, [Some(0), Some(u64::MAX), Some(u64::MAX), Some(u64::MAX)]);
    }
}
