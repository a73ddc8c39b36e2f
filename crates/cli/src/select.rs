//! `--device`: selects a device.

use std::str::FromStr;

use elinvar::{Device, DeviceKind, Error, IsolatedOptions};

use crate::failure::Result;

/// `cpu[:N]`, `cuda[:N]` or `metal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    kind: DeviceKind,
    number: usize,
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("unknown device `{text}`: expected cpu[:N], cuda[:N] or metal");
        let (kind, number) = match text.split_once(':') {
            Some((kind @ ("cpu" | "cuda"), number)) => (kind, number.parse().map_err(|_| wrong())?),
            Some(_) => return Err(wrong()),
            None => (text, 0),
        };
        let kind = match kind {
            "cpu" => DeviceKind::Cpu,
            "cuda" => DeviceKind::Cuda,
            "metal" => DeviceKind::Metal,
            _ => return Err(wrong()),
        };
        Ok(Self { kind, number })
    }
}

impl Selection {
    /// The first device of a kind.
    pub fn first(kind: DeviceKind) -> Self {
        Self { kind, number: 0 }
    }

    pub fn kind(self) -> DeviceKind {
        self.kind
    }

    /// The selected device, or the preferred one.
    pub fn device(selection: Option<Self>) -> Result<Device> {
        let Some(Self { kind, number }) = selection else {
            return Ok(Device::system_default()?);
        };
        let found = Device::all()?.into_iter().filter(|device| device.kind() == kind).nth(number);
        Ok(found.ok_or_else(|| absent(kind, number))?)
    }

    /// The same in a worker process; the CPU if none is selected.
    pub fn isolated(selection: Option<Self>) -> Result<Device> {
        let Self { kind, number: index } = selection.unwrap_or(Self::first(DeviceKind::Cpu));
        Ok(Device::isolated_with(&IsolatedOptions { kind, index, ..IsolatedOptions::default() })?)
    }
}

/// Why there is no such device.
pub fn absent(kind: DeviceKind, number: usize) -> Error {
    let known = Device::absent().into_iter().find(|(name, _)| *name == kind.name());
    let reason = known.map_or_else(String::new, |(_, reason)| format!(": {reason}"));
    Error::unsupported(format!("no device {}:{number}{reason}", kind.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_by_kind_and_number() {
        let parse = |text: &str| text.parse::<Selection>().map(|s| (s.kind, s.number));
        assert_eq!(parse("cpu"), Ok((DeviceKind::Cpu, 0)));
        assert_eq!(parse("cuda:1"), Ok((DeviceKind::Cuda, 1)));
        assert_eq!(parse("metal"), Ok((DeviceKind::Metal, 0)));
        assert_eq!(parse("cpu:1"), Ok((DeviceKind::Cpu, 1)));
        for wrong in ["gpu", "cuda:", "cpu:", "metal:1", "cuda:x", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
