//! Analyses: they compute facts about a function and change nothing.

pub(crate) mod alias_roots;
pub(crate) mod alignment;
pub(crate) mod allowlist;
pub(crate) mod barrier_divergence;
pub(crate) mod cfg;
pub(crate) mod divergence;
pub(crate) mod facts;
pub(crate) mod index_narrowing;
pub(crate) mod interleaved_access;
pub(crate) mod lane_layout;
pub(crate) mod liveness;
pub(crate) mod mask_classes;
pub(crate) mod mod_ref;
pub(crate) mod regions;
pub(crate) mod stack_usage;
pub(crate) mod temporal_divergence;
pub(crate) mod uniformity;
pub(crate) mod vector_shape;
