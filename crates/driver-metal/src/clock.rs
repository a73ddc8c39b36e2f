//! [`Span`]: conversion of GPU times to host times.
//!
//! The GPU counts ticks, whose rate and origin Metal does not report. Metal reports readings of both clocks at the same moment. Given two such
//! readings, (h₀, g₀) before and (h₁, g₁) after, a tick g between them corresponds to
//!
//! h₀ + (g − g₀) · (h₁ − h₀) / (g₁ − g₀)
//!
//! where h is in nanoseconds of the host's clock and g in ticks; the fraction is the duration of a tick. The result is between h₀ and h₁,
//! and as accurate as these.

/// Readings of both clocks at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    /// Host clock in nanoseconds.
    pub(crate) host_ns: u64,
    /// GPU clock in ticks.
    pub(crate) ticks: u64,
}

impl Moment {
    /// A reading at `cpu_ns`, if that is between `before` and `behind`, readings of the host's clock around it; otherwise at their mean.
    pub(crate) fn between(before: u64, behind: u64, cpu_ns: u64, ticks: u64) -> Self {
        let is_ours = (before..=behind).contains(&cpu_ns);
        Self { host_ns: if is_ours { cpu_ns } else { before.midpoint(behind) }, ticks }
    }
}

/// Two readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) before: Moment,
    pub(crate) behind: Moment,
}

impl Span {
    /// The host time of a GPU time; `None` if `ticks` is outside of the span, as for a sample that was not taken.
    pub(crate) fn host_ns(self, ticks: u64) -> Option<u64> {
        let Self { before, behind } = self;
        let all = behind.ticks.checked_sub(before.ticks).filter(|all| *all > 0)?;
        let part = ticks.checked_sub(before.ticks).filter(|part| *part <= all)?;
        let ns = behind.host_ns.checked_sub(before.host_ns)?;
        let ns = u128::from(part) * u128::from(ns) / u128::from(all);
        Some(before.host_ns + u64::try_from(ns).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(host: [u64; 2], gpu: [u64; 2]) -> Span {
        let moment = |at: usize| Moment { host_ns: host[at], ticks: gpu[at] };
        Span { before: moment(0), behind: moment(1) }
    }

    #[test]
    fn ticks_of_any_rate_and_beginning_become_nanoseconds() {
        let same = span([1000, 5000], [1000, 5000]);
        assert_eq!([1000, 1001, 5000].map(|g| same.host_ns(g)), [Some(1000), Some(1001), Some(5000)]);
        // 27 MHz, started long before.
        let slow = span([1_000_000, 2_000_000], [1 << 40, (1 << 40) + 27_000]);
        assert_eq!(slow.host_ns((1 << 40) + 27), Some(1_001_000));
        assert_eq!(slow.host_ns((1 << 40) + 13_500), Some(1_500_000));
        // A rate above 1 GHz, over a century.
        let ns = 3_000_000_000_000_000_000;
        let fast = span([0, ns], [7, 7 + 6 * ns]);
        assert_eq!(fast.host_ns(7 + 3 * ns), Some(ns / 2));
    }

    #[test]
    fn a_time_of_another_clock_is_not_taken() {
        let host_ns = |cpu_ns| Moment::between(1000, 1400, cpu_ns, 5).host_ns;
        assert_eq!([1000, 1100, 1400].map(host_ns), [1000, 1100, 1400]);
        assert_eq!([0, 999, 1401, u64::MAX].map(host_ns), [1200; 4]);
    }

    #[test]
    fn what_the_clock_did_not_show_has_no_time() {
        let span_ = span([1000, 2000], [500, 600]);
        assert_eq!([0, 499, 601, u64::MAX].map(|ticks| span_.host_ns(ticks)), [None; 4]);
        assert_eq!(span([1000, 2000], [500, 500]).host_ns(500), None, "a clock that stands");
        assert_eq!(span([1000, 2000], [500, 400]).host_ns(450), None, "a clock that goes back");
        assert_eq!(span([2000, 1000], [500, 600]).host_ns(550), None);
    }
}
