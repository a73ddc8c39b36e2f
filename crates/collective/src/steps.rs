//! The alpha-beta model on links that differ: the messages of each algorithm, step by step, with a clock for each member.
//!
//! A message leaves when its sender has finished the step before and its earlier messages, and arrives after the occupation and the latency of its
//! link. A member receives one message at a time, and reduces it then. With the same link everywhere this gives the formulas of [`model`](crate::model)
//! for parts of equal length and a power of two of members.

use elinvar_driver::Collective;

use crate::model::{Algorithm, SEGMENT};
use crate::network::Network;

/// Clocks of all members, in seconds.
struct Clocks<'n> {
    network: &'n Network,
    /// Seconds for which a byte that is reduced occupies the member.
    gamma: f64,
    now: Vec<f64>,
    /// Until when each receives.
    receiving: Vec<f64>,
}

impl Algorithm {
    /// Predicted seconds of a collective of the first `size` members of a network, each message on its own link; otherwise as [`Algorithm::seconds`].
    pub fn seconds_on(
        self,
        collective: Collective,
        size: u32,
        bytes: usize,
        network: &Network,
    ) -> Option<f64> {
        // Whether it computes the collective.
        self.seconds(collective, size, bytes, network.slowest(size), network.reduction())?;
        let gamma = if collective.reduction().is_some() { network.reducing(1) } else { 0.0 };
        let zeros = vec![0.0; size as usize];
        let mut clocks = Clocks { network, gamma, now: zeros.clone(), receiving: zeros };
        let m = bytes as f64;
        match (self, collective) {
            _ if size < 2 => {}
            (Self::Ring, Collective::AllToAll) => (1..size).for_each(|step| clocks.shift(step, m, false)),
            (Self::Ring, Collective::AllReduce { .. }) => {
                for step in 0..2 * (size - 1) {
                    clocks.shift(1, m / f64::from(size), step < size - 1);
                }
            }
            (Self::Ring, _) => (1..size).for_each(|_| clocks.shift(1, m, true)),
            (Self::Chain, Collective::Reduce { root, .. }) => clocks.chain(root + 1, bytes),
            (Self::Chain, other) => clocks.chain(other.peer().unwrap_or(0), bytes),
            (Self::Tree, Collective::Broadcast { root }) => clocks.down_tree(root, m),
            (Self::Tree, Collective::Reduce { root, .. }) => clocks.up_tree(root, m),
            (Self::Tree, _) => {
                clocks.up_tree(0, m);
                clocks.down_tree(0, m);
            }
            (Self::Root, Collective::Gather { root }) => {
                let others = (0..size).filter(|rank| *rank != root);
                clocks.exchange(others.map(|rank| (rank, root)), m, false);
            }
            (Self::Root, other) => {
                let root = other.peer().unwrap_or(0);
                clocks.exchange((0..size).filter(|rank| *rank != root).map(|rank| (root, rank)), m, false);
            }
            (Self::Dissemination, _) => {
                let distances = (0..u32::BITS).map(|bit| 1 << bit).take_while(|distance| *distance < size);
                distances.for_each(|distance| clocks.shift(distance, 0.0, false));
            }
            (Self::Message, Collective::Receive { from }) => clocks.exchange([(from, 0)], m, false),
            (Self::Message, other) => clocks.exchange([(0, other.peer().unwrap_or(0))], m, false),
        }
        Some(clocks.now.into_iter().fold(0.0, f64::max))
    }
}

impl Clocks<'_> {
    fn size(&self) -> u32 {
        self.now.len() as u32
    }

    /// Each member sends to the one at a distance.
    fn shift(&mut self, distance: u32, m: f64, reduces: bool) {
        let size = self.size();
        self.exchange((0..size).map(|rank| (rank, (rank + distance) % size)), m, reduces);
    }

    /// Messages of `m` bytes from and to these ranks, those of a sender one after the other.
    fn exchange(&mut self, messages: impl IntoIterator<Item = (u32, u32)>, m: f64, reduces: bool) {
        let mut sent = self.now.clone();
        let mut arrivals = Vec::new();
        for (from, to) in messages {
            let link = self.network.link(from, to);
            let (occupied, sent) = (m / link.bandwidth, &mut sent[from as usize]);
            *sent += occupied;
            arrivals.push((*sent + link.latency, occupied, to as usize));
        }
        arrivals.sort_by(|one, other| one.0.total_cmp(&other.0));
        let reducing = if reduces { self.gamma * m } else { 0.0 };
        for (last, occupied, to) in arrivals {
            self.receiving[to] = self.receiving[to].max(last - occupied) + occupied;
            self.now[to] = self.now[to].max(self.receiving[to]) + reducing;
        }
        self.now.iter_mut().zip(sent).for_each(|(now, sent)| *now = now.max(sent));
    }

    /// The chain that begins with a rank, pipelined: the times at which the first segment and the last byte can be passed on.
    fn chain(&mut self, begin: u32, bytes: usize) {
        let (size, m, segment) = (self.size(), bytes as f64, bytes.min(SEGMENT) as f64);
        let (mut first, mut last) = (0.0_f64, 0.0_f64);
        for place in 0..size - 1 {
            let [from, to] = [place, place + 1].map(|place| (begin + place) % size);
            let link = self.network.link(from, to);
            let sent = (first + m / link.bandwidth).max(last + segment / link.bandwidth);
            self.now[from as usize] = sent.max(last);
            let came = (first + segment / link.bandwidth + link.latency, sent + link.latency);
            first = came.0 + self.gamma * segment;
            last = (came.1 + self.gamma * segment).max(came.0 + self.gamma * m);
            self.now[to as usize] = last;
        }
    }

    /// The distances of a binomial tree, from the leaves on, and the messages at one of them towards the root.
    fn level(&self, root: u32, distance: u32) -> impl Iterator<Item = (u32, u32)> + use<> {
        let size = self.size();
        let places = (distance..size).step_by(2 * distance as usize);
        places.map(move |place| ((place + root) % size, (place - distance + root) % size))
    }

    fn distances(&self) -> impl DoubleEndedIterator<Item = u32> + use<> {
        (0..self.size().next_power_of_two().ilog2()).map(|level| 1 << level)
    }

    fn up_tree(&mut self, root: u32, m: f64) {
        for distance in self.distances() {
            self.exchange(self.level(root, distance), m, true);
        }
    }

    fn down_tree(&mut self, root: u32, m: f64) {
        for distance in self.distances().rev() {
            self.exchange(self.level(root, distance).map(|(far, near)| (near, far)), m, false);
        }
    }
}
