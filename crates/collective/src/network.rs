//! [`Network`]: links with given latency and bandwidth, on which a ring simulates the time of its collectives.
//!
//! Data moves through shared memory as ever; each message also carries the simulated time at which it arrives, and each member has a clock. This is a
//! discrete-event simulation without a central queue of events: a member receives in an order that its algorithm determines, so that the arrival times in
//! the messages are all that its clock depends on (conservative simulation; Chandy and Misra, 1979). A member sends one message at a time and receives one
//! at a time, both at once; links of different pairs do not share capacity otherwise.

use std::collections::HashMap;

use elinvar_driver::{Error, Result};

/// Hockney's model of a link (1994): a message of `m` bytes takes `latency + m / bandwidth`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// In seconds.
    pub latency: f64,
    /// In bytes per second.
    pub bandwidth: f64,
}

impl LinkCost {
    /// Seconds for which a message occupies the link.
    pub fn occupied(&self, bytes: usize) -> f64 {
        bytes as f64 / self.bandwidth
    }

    fn checked(self, what: impl Fn() -> String) -> Result<Self> {
        let is_valid = self.latency >= 0.0 && self.latency.is_finite() && self.bandwidth > 0.0;
        if is_valid && !self.bandwidth.is_nan() {
            return Ok(self);
        }
        let Self { latency, bandwidth } = self;
        Err(Error::invalid(format!(
            "{}: latency {latency} s, bandwidth {bandwidth} B/s; expected 0 or more, and more than 0",
            what()
        )))
    }
}

/// The links between members, by rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    link: LinkCost,
    /// Members of a group, and the links within it.
    group: Option<(u32, LinkCost)>,
    links: HashMap<(u32, u32), LinkCost>,
    /// Bytes per second that a member reduces.
    reduction: f64,
}

impl Network {
    /// The same link between all members, and reductions that take no time.
    ///
    /// # Errors
    /// `InvalidArgument` for a negative latency, or a bandwidth that is not above 0.
    pub fn uniform(link: LinkCost) -> Result<Self> {
        let link = link.checked(|| "a link".into())?;
        Ok(Self { link, group: None, links: HashMap::new(), reduction: f64::INFINITY })
    }

    /// Reads a description, a statement a line, of which later ones win; `#` begins a comment:
    ///
    /// ```text
    /// link * * 25e9 5e-6       # all pairs: bytes per second, seconds
    /// group 8 450e9 1.5e-6     # pairs of the same eight consecutive ranks
    /// link 0 9 50e9 3e-6       # from rank 0 to rank 9
    /// reduce 200e9             # bytes per second that a member reduces
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` with the line.
    pub fn parse(text: &str) -> Result<Self> {
        let free = LinkCost { latency: 0.0, bandwidth: f64::INFINITY };
        let mut network = Self::uniform(free)?;
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let place = || format!("line {number} of a network, `{}`", line.trim());
            let known = network.statement(&words, &place)?;
            if known.is_none() {
                return Err(Error::invalid(format!(
                    "{}: expected `link FROM TO BYTES_PER_S SECONDS`, `group SIZE BYTES_PER_S SECONDS` or `reduce BYTES_PER_S`",
                    place()
                )));
            }
        }
        Ok(network)
    }

    /// `None` for words that are no statement.
    fn statement(&mut self, words: &[&str], place: &impl Fn() -> String) -> Result<Option<()>> {
        let number = |word: &str| word.parse::<f64>().ok();
        let link = |bandwidth: &str, latency: &str| {
            let link = number(bandwidth).zip(number(latency));
            link.map(|(bandwidth, latency)| LinkCost { latency, bandwidth }.checked(place)).transpose()
        };
        match *words {
            ["link", from, to, bandwidth, latency] => {
                let Some(link) = link(bandwidth, latency)? else { return Ok(None) };
                match (from, to, from.parse().ok().zip(to.parse().ok())) {
                    ("*", "*", _) => self.link = link,
                    (_, _, Some((from, to))) => self.set(from, to, link)?,
                    _ => return Ok(None),
                }
            }
            ["group", size, bandwidth, latency] => {
                let Some((size, link)) =
                    size.parse().ok().filter(|size| *size > 0).zip(link(bandwidth, latency)?)
                else {
                    return Ok(None);
                };
                self.group = Some((size, link));
            }
            ["reduce", rate] => {
                let Some(rate) = number(rate).filter(|rate| *rate > 0.0) else { return Ok(None) };
                self.reduction = rate;
            }
            _ => return Ok(None),
        }
        Ok(Some(()))
    }

    /// Sets the link from one rank to another.
    ///
    /// # Errors
    /// As [`Network::uniform`].
    pub fn set(&mut self, from: u32, to: u32, link: LinkCost) -> Result<()> {
        let link = link.checked(|| format!("the link from {from} to {to}"))?;
        self.links.insert((from, to), link);
        Ok(())
    }

    /// The link from one rank to another.
    pub fn link(&self, from: u32, to: u32) -> LinkCost {
        if let Some(link) = self.links.get(&(from, to)) {
            return *link;
        }
        match self.group {
            Some((size, link)) if from / size == to / size => link,
            _ => self.link,
        }
    }

    /// The greatest latency and the least bandwidth of links between members whose ranks differ by a power of two, modulo the size: those that rings and
    /// trees use.
    pub fn slowest(&self, size: u32) -> LinkCost {
        let distances = || (0..u32::BITS).map(|bit| 1 << bit).take_while(|distance| *distance < size);
        let pairs =
            (0..size).flat_map(|from| distances().map(move |distance| (from, (from + distance) % size)));
        let links = pairs.flat_map(|(one, other)| [self.link(one, other), self.link(other, one)]);
        let worse = |one: LinkCost, other: LinkCost| LinkCost {
            latency: one.latency.max(other.latency),
            bandwidth: one.bandwidth.min(other.bandwidth),
        };
        links.reduce(worse).unwrap_or(self.link)
    }

    /// Seconds that a member needs to reduce these bytes.
    pub fn reducing(&self, bytes: usize) -> f64 {
        bytes as f64 / self.reduction
    }

    /// Bytes per second that a member reduces.
    pub fn reduction(&self) -> f64 {
        self.reduction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read() {
        let text = "# two levels\nlink * * 25e9 5e-6\ngroup 8 450e9 1.5e-6\n\nlink 0 9 50e9 3e-6 # one\nreduce 2e11\n";
        let network = Network::parse(text).unwrap();
        let link = |bandwidth, latency| LinkCost { latency, bandwidth };
        assert_eq!(network.link(3, 7), link(450e9, 1.5e-6));
        assert_eq!(network.link(7, 8), link(25e9, 5e-6));
        assert_eq!((network.link(0, 9), network.link(9, 0)), (link(50e9, 3e-6), link(25e9, 5e-6)));
        assert!((network.reducing(1000) - 5e-9).abs() < 1e-18);
        assert_eq!((network.slowest(8), network.slowest(9)), (link(450e9, 1.5e-6), link(25e9, 5e-6)));
        for wrong in
            ["link 0 1 5", "link a 1 5 5", "group 0 1 1", "reduce 0", "link * * -1 0", "link * * 1 nan", "x"]
        {
            let error = Network::parse(&format!("\n{wrong}")).unwrap_err().to_string();
            assert!(error.contains("line 2 of a network") && error.contains(wrong), "{error}");
        }
    }
}
