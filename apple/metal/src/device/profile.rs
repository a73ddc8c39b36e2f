//! [`Profile`]: the device that is simulated. `ELINVAR_APPLE_PROFILE` is a comma-separated list of the process's devices; the first is the
//! system's default.
//!
//! Limits follow Apple's [Metal Feature Set Tables](https://developer.apple.com/metal/Metal-Feature-Set-Tables.pdf); memory sizes are
//! ours. The system's version is set per process: `ELINVAR_APPLE_OS`.

use elinvar_objc::watch::fatal;

/// Properties of a device.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Name that selects it.
    pub key: &'static str,
    /// The device's name.
    pub name: &'static str,
    /// The architecture's name.
    pub architecture: &'static str,
    /// The highest Apple GPU family that it supports, 0 for none.
    pub apple_family: isize,
    /// Whether it supports the family Mac2.
    pub mac2: bool,
    /// Whether it supports the family Metal3.
    pub metal3: bool,
    /// Unified memory; if false, managed buffers have two copies.
    pub unified: bool,
    /// Nonuniform threadgroup sizes.
    pub nonuniform: bool,
    /// Whether Metal Performance Shaders supports it.
    pub shaders: bool,
    /// Memory in bytes.
    pub memory: u64,
    /// Maximum buffer size in bytes.
    pub buffer: usize,
    /// Maximum threadgroup memory in bytes.
    pub threadgroup_memory: usize,
    /// Maximum number of threads per threadgroup.
    pub threads: usize,
    /// Where counters can be sampled. A guess for the first families, and for discrete GPUs not sampling at pass boundaries.
    pub samples: Samples,
    /// The GPU clock.
    pub clock: Clock,
    /// Its [peer group](https://developer.apple.com/documentation/metal/mtldevice/peergroupid), 0 for none. A device without peers has
    /// none: `discrete` has a peer if it is listed twice.
    pub peers: u64,
}

/// Where counters can be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// No counters.
    Nowhere,
    /// At the boundaries of passes.
    Passes,
    /// Between dispatches and blits.
    Commands,
}

/// A GPU's clock, as a linear function of the host's.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Its value at host time 0.
    begin: u64,
    /// Ticks per microsecond.
    per_us: u64,
}

impl Clock {
    /// Its value at a host time in nanoseconds.
    pub fn ticks(self, host_ns: u64) -> u64 {
        let ticks = u128::from(host_ns) * u128::from(self.per_us) / 1000;
        self.begin.saturating_add(u64::try_from(ticks).unwrap_or(u64::MAX))
    }
}

const NANOSECONDS: Clock = Clock { begin: 0, per_us: 1000 };

const GIB: u64 = 1 << 30;

/// A family without nonuniform threadgroup sizes.
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

/// All profiles.
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
    // A device without support by Metal Performance Shaders.
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
    // A discrete GPU.
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
    /// The profile with that name.
    pub fn named(name: &str) -> Self {
        let found = PROFILES.into_iter().find(|profile| profile.key == name);
        found.unwrap_or_else(|| {
            let known = PROFILES.map(|profile| profile.key).join(", ");
            fatal(format_args!("there is no device profile `{name}`; there are {known}"))
        })
    }

    /// The profiles of the process.
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
