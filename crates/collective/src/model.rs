//! The time of collectives by the alpha-beta model: `α` seconds for a message, `β` seconds a byte (Hockney, 1994), and `γ` seconds a byte that is reduced.
//!
//! The costs are those of Thakur, Rabenseifner and Gropp (Optimization of Collective Communication Operations in MPICH, 2005), Chan, Heimlich, Purkayastha
//! and van de Geijn (Collective Communication: Theory, Practice, and Experience, 2007), and for the ring's all-reduce of Patarasuk and Yuan (2009). Members send and
//! receive at once, one message each way.
//!
//! | algorithm | collective | seconds, for `n` members and `m` bytes |
//! |---|---|---|
//! | ring | all-reduce of `m` | `2 (n − 1) (α + β m / n) + γ m (n − 1) / n` |
//! | | all-gather, reduce-scatter of parts of `m`, all-to-all | `(n − 1) (α + β m)`, and `γ m (n − 1)` if it reduces |
//! | chain, in segments of `s` | broadcast, reduce | `(n − 1) (α + (β + γ) s) + max(β, γ) (m − s)` |
//! | tree, binomial | broadcast, reduce | `⌊log₂ n⌋ α + ⌈log₂ n⌉ (β + γ) m` |
//! | | all-reduce | that of both |
//! | root | gather, scatter of parts of `m` | `α + (n − 1) β m` |
//! | dissemination | barrier | `⌈log₂ n⌉ α` |

use elinvar_driver::Collective;

use crate::network::LinkCost;

/// Bytes of a segment of a pipelined chain.
pub(crate) const SEGMENT: usize = 64 << 10;
/// Bytes up to which broadcast, reduce and all-reduce use the tree. Above, `n` messages in sequence cost less than `log n` times the data.
const TREE_BYTES: usize = 4096;

/// How a collective moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Steps around the ring of all ranks.
    Ring,
    /// A chain of all ranks, pipelined.
    Chain,
    /// A binomial tree.
    Tree,
    /// The root exchanges messages with each rank.
    Root,
    /// Barrier in rounds with doubling distance (Hensgen, Finkel and Manber, 1988).
    Dissemination,
    /// One message.
    Message,
}

impl Algorithm {
    /// The one that this crate's ring uses for a part of these bytes.
    pub fn of(collective: Collective, size: u32, part_bytes: usize) -> Self {
        let is_small = part_bytes <= TREE_BYTES && size > 2;
        match collective {
            Collective::Broadcast { .. } | Collective::Reduce { .. } if is_small => Self::Tree,
            Collective::Broadcast { .. } | Collective::Reduce { .. } => Self::Chain,
            Collective::AllReduce { .. } if is_small => Self::Tree,
            Collective::AllReduce { .. }
            | Collective::AllGather
            | Collective::ReduceScatter { .. }
            | Collective::AllToAll => Self::Ring,
            Collective::Gather { .. } | Collective::Scatter { .. } => Self::Root,
            Collective::Send { .. } | Collective::Receive { .. } => Self::Message,
            Collective::Barrier => Self::Dissemination,
        }
    }

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Chain => "chain",
            Self::Tree => "tree",
            Self::Root => "root",
            Self::Dissemination => "dissemination",
            Self::Message => "message",
        }
    }

    /// Predicted seconds of a collective of `size` members whose part has `bytes` (as [`elinvar_driver::CollectiveCall::part_bytes`]), between any two of which is
    /// the same link. `reduction` is the number of bytes per second that a member reduces. `None` if the algorithm does not compute the collective.
    pub fn seconds(
        self,
        collective: Collective,
        size: u32,
        bytes: usize,
        link: LinkCost,
        reduction: f64,
    ) -> Option<f64> {
        let (alpha, beta, m) = (link.latency, 1.0 / link.bandwidth, bytes as f64);
        let gamma = if collective.reduction().is_some() { 1.0 / reduction } else { 0.0 };
        let (others, all) = (f64::from(size.saturating_sub(1)), f64::from(size.max(1)));
        if size < 2 {
            return Some(0.0);
        }
        let (floor, ceil) = (f64::from(size.ilog2()), f64::from((size - 1).ilog2() + 1));
        let tree = |gamma: f64| floor * alpha + ceil * (beta + gamma) * m;
        let segment = bytes.min(SEGMENT) as f64;
        let chain =
            |gamma: f64| others * (alpha + (beta + gamma) * segment) + beta.max(gamma) * (m - segment);
        Some(match (self, collective) {
            (Self::Ring, Collective::AllReduce { .. }) => {
                2.0 * others * (alpha + beta * m / all) + gamma * m * others / all
            }
            (Self::Ring, Collective::AllGather | Collective::AllToAll | Collective::ReduceScatter { .. }) => {
                others * (alpha + (beta + gamma) * m)
            }
            (Self::Chain, Collective::Broadcast { .. } | Collective::Reduce { .. }) => chain(gamma),
            (Self::Tree, Collective::Broadcast { .. } | Collective::Reduce { .. }) => tree(gamma),
            (Self::Tree, Collective::AllReduce { .. }) => tree(gamma) + tree(0.0),
            (Self::Root, Collective::Gather { .. } | Collective::Scatter { .. }) => alpha + others * beta * m,
            (Self::Dissemination, Collective::Barrier) => ceil * alpha,
            (Self::Message, Collective::Send { .. } | Collective::Receive { .. }) => alpha + beta * m,
            _ => return None,
        })
    }
}
