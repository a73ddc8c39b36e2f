//! [`Primitives`]: the set of primitives that a device supports.

use super::{Activation, DataType, Extent, GraphLibrary, Images, Layout, Primitive, PrimitiveKind, Volumes};
use crate::{Error, MemorySlice, Result};

/// A library with primitives. Each has rules of its own about shapes and layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum PrimitiveLibrary {
    /// A library without rules of its own.
    #[default]
    Any,
    /// Metal Performance Shaders.
    MetalPerformanceShaders,
    /// cuBLASLt and cuDNN.
    Nvidia,
}

/// The primitives that a device supports, by operation and element type, and the library's rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Primitives {
    bits: u64,
    library: PrimitiveLibrary,
    image_side: u32,
    image_channels: u32,
    graph: Option<GraphLibrary>,
}

impl Primitives {
    /// The empty set, of a device without a vendor library.
    pub const NONE: Self = Self::of(PrimitiveLibrary::Any);

    /// The empty set of a library, without a limit to images.
    pub const fn of(library: PrimitiveLibrary) -> Self {
        Self { bits: 0, library, image_side: u32::MAX, image_channels: u32::MAX, graph: None }
    }

    /// Adds an operation for an element type.
    #[must_use]
    pub const fn with(self, kind: PrimitiveKind, data_type: DataType) -> Self {
        Self { bits: self.bits | bit(kind, data_type), ..self }
    }

    /// Adds an operation for all floating-point types.
    #[must_use]
    pub fn with_floats(self, kind: PrimitiveKind) -> Self {
        DataType::FLOATS.into_iter().fold(self, |set, data_type| set.with(kind, data_type))
    }

    /// Limits images, and the matrices of reductions, to `side` rows, `side` columns and `channels` channels.
    #[must_use]
    pub const fn with_images(self, side: u32, channels: u32) -> Self {
        Self { image_side: side, image_channels: channels, ..self }
    }

    /// Adds what MPSGraph computes, for primitives that the library lacks.
    #[must_use]
    pub const fn with_graph(self, graph: GraphLibrary) -> Self {
        Self { graph: Some(graph), ..self }
    }

    /// Whether an operation is supported for an element type.
    pub const fn has(self, kind: PrimitiveKind, data_type: DataType) -> bool {
        let by_graph = match self.graph {
            Some(graph) => graph.has(kind, data_type),
            None => false,
        };
        self.has_bit(kind, data_type) || by_graph
    }

    const fn has_bit(self, kind: PrimitiveKind, data_type: DataType) -> bool {
        self.bits & bit(kind, data_type) != 0
    }

    /// Iterates over the supported pairs of operation and element type.
    pub fn iter(self) -> impl Iterator<Item = (PrimitiveKind, DataType)> {
        let pairs = PrimitiveKind::ALL.into_iter().flat_map(|kind| DataType::ALL.map(|ty| (kind, ty)));
        pairs.filter(move |(kind, data_type)| self.has(*kind, *data_type))
    }

    /// Checks that `primitive` is supported for these operands; `device` is the device's name for messages.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the operation is not supported for the element type, an image exceeds the limits, or the library lacks
    /// a shape, a layout or a placement.
    pub fn expect(self, primitive: &Primitive, operands: &[MemorySlice], device: &str) -> Result<()> {
        let Some(reason) = self.lacks(primitive, operands, device) else { return Ok(()) };
        match self.graph.map(|graph| graph_lacks(graph, primitive, operands)) {
            Some(None) => Ok(()),
            Some(Some(lacks)) => Err(Error::unsupported(format!("{reason}; MPSGraph {lacks}"))),
            None if self.library == PrimitiveLibrary::MetalPerformanceShaders => {
                Err(Error::unsupported(format!("{reason}; there is no MPSGraph before macOS 12.3")))
            }
            None => Err(Error::unsupported(reason)),
        }
    }

    /// Whether MPSGraph computes `primitive` for these operands: the library lacks it.
    pub fn is_for_graph(self, primitive: &Primitive, operands: &[MemorySlice]) -> bool {
        self.graph.is_some_and(|graph| graph_lacks(graph, primitive, operands).is_none())
            && self.lacks(primitive, operands, "").is_some()
    }

    /// MPSGraph, if the device has it.
    pub const fn graph(self) -> Option<GraphLibrary> {
        self.graph
    }

    /// The library that computes `primitive` for these operands, and its operation or class, as far as they are known; otherwise the name
    /// of the operation.
    pub fn algorithm(self, primitive: &Primitive, operands: &[MemorySlice]) -> &'static str {
        if let Some(graph) = self.graph.filter(|_| self.is_for_graph(primitive, operands)) {
            return graph.algorithm(primitive);
        }
        match (self.library, primitive.kind()) {
            (PrimitiveLibrary::MetalPerformanceShaders, PrimitiveKind::MatMul) => "MPSMatrixMultiplication",
            (PrimitiveLibrary::MetalPerformanceShaders, PrimitiveKind::MatVec) => {
                "MPSMatrixVectorMultiplication"
            }
            (PrimitiveLibrary::MetalPerformanceShaders, PrimitiveKind::Softmax) => "MPSMatrixSoftMax",
            (PrimitiveLibrary::MetalPerformanceShaders, PrimitiveKind::Reduction) => "MPSNNReduce",
            (PrimitiveLibrary::MetalPerformanceShaders, PrimitiveKind::Convolution) => "MPSCNNConvolution",
            (PrimitiveLibrary::MetalPerformanceShaders, PrimitiveKind::Pooling) => "MPSCNNPooling",
            (_, kind) => kind.name(),
        }
    }

    /// Why the library, without MPSGraph, does not compute a primitive.
    fn lacks(self, primitive: &Primitive, operands: &[MemorySlice], device: &str) -> Option<String> {
        let (kind, data_type) = (primitive.kind(), primitive.data_type());
        if !self.has_bit(kind, data_type) {
            let name = kind.name();
            return Some(format!("{name} of {data_type}: device `{device}` has no library for it"));
        }
        for (name, Images { channels, height, width, .. }) in images(primitive) {
            let (side, most) = (self.image_side, self.image_channels);
            if height.max(width) > side || channels > most {
                return Some(format!(
                    "{}: `{name}` has {height} × {width} pixels of {channels} channels; device `{device}` supports up to \
                     {side} × {side} of {most}",
                    kind.name()
                ));
            }
        }
        let lacks = self.rule(primitive, operands)?;
        Some(format!("{}: the library of device `{device}` {lacks}", kind.name()))
    }

    /// What the library lacks for a primitive.
    fn rule(self, primitive: &Primitive, operands: &[MemorySlice]) -> Option<&'static str> {
        let broken: &[(bool, &'static str)] = match (self.library, primitive) {
            (PrimitiveLibrary::MetalPerformanceShaders, Primitive::MatMul(p)) => &[
                (p.bias || p.activation != Activation::None, "has no bias and no activation in products"),
                (
                    p.matrices > 1 && (p.left.matrix_bytes == 0 || p.right.matrix_bytes == 0),
                    "does not share a factor between products",
                ),
            ],
            (PrimitiveLibrary::MetalPerformanceShaders, Primitive::Convolution(p)) => &[
                (p.groups != 1, "does not convolve in groups"),
                (p.weight_type != DataType::F32, "takes weights of f32 only"),
                (p.weight_layout != Layout::ChannelsLast, "takes weights with the channels last only"),
            ],
            // cuBLAS documentation, `cublasLtMatmul`: integers in the regular data ordering.
            (PrimitiveLibrary::Nvidia, Primitive::MatMul(p)) if p.data_type == DataType::I8 => {
                let strides = [p.left, p.right].map(|m| [m.row_bytes, m.matrix_bytes]);
                let fours = strides.as_flattened().iter().all(|stride| stride.is_multiple_of(4));
                &[
                    (
                        p.transpose_left || !p.transpose_right,
                        "multiplies integers by a transposed right factor only",
                    ),
                    (
                        !fours || !p.interior().is_multiple_of(4) || !p.result.columns.is_multiple_of(4),
                        "multiplies integers if columns, inner dimension and strides are multiples of 4 only",
                    ),
                    (
                        operands.iter().any(|operand| !operand.offset.is_multiple_of(16)),
                        "multiplies integers at multiples of 16 bytes only",
                    ),
                ]
            }
            // For other operands, cuBLASLt has algorithms that round the product before the bias is added (measured with version 13.1).
            (PrimitiveLibrary::Nvidia, Primitive::MatMul(p))
                if p.data_type != DataType::F32 && (p.bias || p.activation != Activation::None) =>
            {
                let strides = [p.left, p.right, p.result].map(|m| [m.row_bytes, m.matrix_bytes]);
                let strides = strides.as_flattened().iter().copied();
                let all = strides.chain(operands.iter().map(|operand| operand.offset));
                &[(
                    all.into_iter().any(|place| !place.is_multiple_of(16)),
                    "adds bias and activation to 16-bit products at multiples of 16 bytes only",
                )]
            }
            (PrimitiveLibrary::Nvidia, Primitive::Convolution(p)) => &[
                (p.weight_type != p.data_type, "takes weights of the images' type only"),
                (p.weight_layout != p.layout, "takes weights in the images' layout only"),
                (!p.window.padding.is_symmetric(), "pads opposite sides alike only"),
            ],
            // cuDNN adds a bias to a result that is rounded already. Its tensors have less than 2³¹ elements.
            (PrimitiveLibrary::Nvidia, Primitive::VolumeConvolution(p)) => &[
                (
                    p.bias && p.data_type != DataType::F32,
                    "adds a bias to convolutions of volumes of f32 only",
                ),
                (is_large(p.source) || is_large(p.result), "takes volumes of less than 2³¹ elements only"),
            ],
            (PrimitiveLibrary::Nvidia, Primitive::BatchNorm(p)) => {
                &[(is_large(p.source), "takes volumes of less than 2³¹ elements only")]
            }
            (PrimitiveLibrary::Nvidia, Primitive::Pooling(p)) => {
                &[(!p.window.padding.is_symmetric(), "pads opposite sides alike only")]
            }
            _ => &[],
        };
        broken.iter().find(|(broken, _)| *broken).map(|(_, lacks)| *lacks)
    }
}

/// Why MPSGraph does not compute a primitive.
fn graph_lacks(graph: GraphLibrary, primitive: &Primitive, operands: &[MemorySlice]) -> Option<&'static str> {
    let (kind, data_type) = (primitive.kind(), primitive.data_type());
    match graph.has(kind, data_type) {
        true => graph.lacks(primitive, operands),
        false if data_type == DataType::BF16 && graph.has(kind, DataType::F32) => {
            Some("computes with bf16 from macOS 14 on only")
        }
        false => Some("is not used for it"),
    }
}

fn is_large(volumes: Volumes) -> bool {
    volumes.elements() > i32::MAX as u128
}

const fn bit(kind: PrimitiveKind, data_type: DataType) -> u64 {
    1_u64 << (kind as u32 * DataType::ALL.len() as u32 + data_type as u32)
}

/// The operands that the library processes as images.
fn images(primitive: &Primitive) -> Vec<(&'static str, Images)> {
    match primitive {
        Primitive::Convolution(p) => vec![("source", p.source), ("result", p.result())],
        Primitive::Pooling(p) => vec![("source", p.source), ("result", p.result())],
        Primitive::Reduction(p) => {
            let (height, width) = (p.source.rows, p.source.columns);
            let whole = Images { count: 1, channels: 1, height, width };
            let result = match p.each {
                Extent::Row => Images { width: 1, ..whole },
                Extent::Column => Images { height: 1, ..whole },
            };
            vec![("source", whole), ("result", result)]
        }
        _ => Vec::new(),
    }
}
