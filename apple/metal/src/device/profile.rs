//! [`Profile`]: which device is stood for. `ELINVAR_APPLE_PROFILE` names those of the process, with commas between; the
//! first is the system's default.
//!
//! Limits follow Apple's [Metal Feature Set Tables](https://developer.apple.com/metal/Metal-Feature-Set-Tables.pdf); sizes of
//! memory are ours. The system's version is a matter of the process: `ELINVAR_APPLE_OS`.

use elinvar_objc::watch::fatal;

/// Facts of a device.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// What selects it.
    pub key: &'static str,
    /// The device's name.
    pub name: &'static str,
    /// The architecture's name.
    pub architecture: &'static str,
    /// The last of Apple's families that it supports, 0 for none.
    pub apple_family: isize,
    /// Whether it supports the second family of Macs.
    pub mac2: bool,
    /// Whether it supports the family Metal 3.
    pub metal3: bool,
    /// Whether host and device share their memory; if not, managed buffers have two copies.
    pub unified: bool,
    /// Whether the last threadgroups of a grid may be smaller.
    pub nonuniform: bool,
    /// Whether Metal Performance Shaders has kernels for it.
    pub shaders: bool,
    /// Bytes that it has.
    pub memory: u64,
    /// Bytes of the largest buffer.
    pub buffer: usize,
    /// Bytes of threadgroup memory.
    pub threadgroup_memory: usize,
    /// Threads of a threadgroup.
    pub threads: usize,
    /// Where counters can be sampled. That of the first families is a guess, and so is that cards do not sample at the ends of passes.
    pub samples: Samples,
    /// What its clock shows.
    pub clock: Clock,
    /// Its [peer group](https://developer.apple.com/documentation/metal/mtldevice/peergroupid), 0 for none. A device that is
    /// alone in it has none: `discrete` has a peer where it is named twice.
    pub peers: u64,
}

/// Where counters can be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// There are no counters.
    Nowhere,
    /// At the ends of passes.
    Passes,
    /// Between dispatches and copies.
    Commands,
}

/// A GPU's clock, as a function of the host's.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What it showed when the host's showed 0.
    begin: u64,
    /// Its ticks in a microsecond.
    per_us: u64,
}

impl Clock {
    /// What it shows when the host's shows so many nanoseconds.
    pub fn ticks(self, host_ns: u64) -> u64 {
        let ticks = u128::from(host_ns) * u128::from(self.per_us) / 1000;
        self.begin.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
    }
}

const NANOSECONDS: Clock = Clock { begin: 0, per_us: 1000 };

const GIB: u64 = 1 << 30;

/// A family that has no threadgroups of different sizes.
const APPLE3: Profile = Profile {
    key: "apple3",
    name: "Elinvar stand-in (Apple3)",
    architecture: "applegpu_g9p",
    apple_family: 3,
    mac2: false,
    metal3: false,
    unified: true,
    nonuniform: false,
    shaders: true,
    memory: GIB,
    buffer: 256 << 20,
    threadgroup_memory: 16 << 10,
    threads: 512,
    samples: Samples::Nowhere,
    clock: NANOSECONDS,
    peers: 0,
};

/// All there are.
const PROFILES: [Profile; 6] = [
    Profile {
        key: "apple9",
        name: "Elinvar stand-in (Apple9)",
        architecture: "applegpu_g15s",
        apple_family: 9,
        mac2: true,
        metal3: true,
        unified: true,
        nonuniform: true,
        shaders: true,
        memory: 16 * GIB,
        buffer: 8 << 30,
        threadgroup_memory: 32 << 10,
        threads: 1024,
        samples: Samples::Passes,
        clock: NANOSECONDS,
        peers: 0,
    },
    Profile {
        key: "apple7",
        name: "Elinvar stand-in (Apple7)",
        architecture: "applegpu_g13g",
        apple_family: 7,
        mac2: true,
        metal3: true,
        unified: true,
        nonuniform: true,
        shaders: true,
        memory: 8 * GIB,
        buffer: 4 << 30,
        threadgroup_memory: 32 << 10,
        threads: 1024,
        samples: Samples::Passes,
        clock: Clock { begin: 7 << 50, per_us: 24 },
        peers: 0,
    },
    APPLE3,
    // A device without Metal Performance Shaders.
    Profile {
        key: "apple1",
        name: "Elinvar stand-in (Apple1)",
        architecture: "applegpu_g4p",
        apple_family: 1,
        shaders: false,
        ..APPLE3
    },
    Profile {
        key: "small",
        name: "Elinvar stand-in (small)",
        architecture: "applegpu_g13p",
        apple_family: 7,
        mac2: true,
        metal3: true,
        unified: true,
        nonuniform: true,
        shaders: true,
        memory: 64 << 20,
        buffer: 16 << 20,
        threadgroup_memory: 32 << 10,
        threads: 1024,
        samples: Samples::Passes,
        clock: NANOSECONDS,
        peers: 0,
    },
    // A card with memory of its own.
    Profile {
        key: "discrete",
        name: "Elinvar stand-in (discrete)",
        architecture: "discrete",
        apple_family: 0,
        mac2: true,
        metal3: true,
        unified: false,
        nonuniform: true,
        shaders: true,
        memory: 8 * GIB,
        buffer: 3 << 30,
        threadgroup_memory: 64 << 10,
        threads: 1024,
        samples: Samples::Commands,
        clock: Clock { begin: 1 << 40, per_us: 27 },
        peers: 1,
    },
];

impl Profile {
    /// The one of that name.
    pub fn named(name: &str) -> Self {
        let found = PROFILES.into_iter().find(|profile| profile.key == name);
        found.unwrap_or_else(|| {
            let known = PROFILES.map(|profile| profile.key).join(", ");
            fatal(format_args!("there is no device profile `{name}`; there are {known}"))
        })
    }

    /// Those of the process.
    pub fn of_environment() -> Vec<Self> {
        let text = std::env::var("ELINVAR_APPLE_PROFILE").unwrap_or_default();
        if text == "none" {
            return Vec::new();
        }
        let names: Vec<&str> = text.split(',').filter(|name| !name.is_empty()).collect();
        if names.is_empty() { vec![PROFILES[0]] } else { names.into_iter().map(Self::named).collect() }
    }

    /// Whether it supports an `MTLGPUFamily`.
    pub fn supports(&self, family: isize) -> bool {
        match family {
            1001..=1099 => family - 1000 <= self.apple_family,
            2001 | 2002 => self.mac2,
            3001 => true,
            3002 => self.mac2 || self.apple_family >= 3,
            3003 => self.mac2 || self.apple_family >= 7,
            5001 => self.metal3,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_include_those_before() {
        let (new, old, card) =
            (Profile::named("apple9"), Profile::named("apple3"), Profile::named("discrete"));
        let supported = |profile: Profile| {
            [1001, 1003, 1004, 1009, 1010, 2002, 3001, 3003, 5001, 5002]
                .map(|family| profile.supports(family))
        };
        let (t, f) = (true, false);
        assert_eq!(supported(new), [t, t, t, t, f, t, t, t, t, f]);
        assert_eq!(supported(old), [t, t, f, f, f, f, t, f, f, f]);
        assert_eq!(supported(card), [f, f, f, f, f, t, t, t, t, f]);
    }
}
