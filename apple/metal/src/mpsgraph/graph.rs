//! [`Graph`]: [`MPSGraph`](https://developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraph): its operations, with the
//! rules for shapes and types.
//!
//! Operands of one operation have one type. Shapes are broadcast from the last axis on. A violation ends the process, as that of MPSGraph's
//! compiler does.

use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_objc::foundation::{NsArray, NsString, os_version};
use elinvar_objc::{Declaration, Property, Ref};

use super::convolution::{Convolution, Images, Volumes};
use super::executable::Executable;
use super::operations::{Operation, Reduction};
use super::tensor::{BOOL, Node, Tensor, exists, is_float, sizes, whole};
use crate::require;

type Name = Option<Ref<NsString>>;
type Made = Option<Ref<Tensor>>;

/// `MPSGraph`.
pub struct Graph {
    /// Its number, by which its tensors know it.
    pub number: u64,
    options: Property<u64>,
}

elinvar_objc::object!(Graph, c"MPSGraph");

impl Default for Graph {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // By default results are synchronized for the host.
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), options: Property::new(1) }
    }
}

/// The shape of operands that are broadcast.
fn broadcast(left: &[usize], right: &[usize]) -> Option<Vec<usize>> {
    let rank = left.len().max(right.len());
    let size = |of: &[usize], axis: usize| (axis + of.len()).checked_sub(rank).map_or(1, |axis| of[axis]);
    let both = (0..rank).map(|axis| match (size(left, axis), size(right, axis)) {
        (left, right) if left == right || right == 1 => Some(left),
        (1, right) => Some(right),
        _ => None,
    });
    both.collect()
}

impl Graph {
    fn add(&self, operation: Operation, inputs: &[&Ref<Tensor>], shape: Vec<usize>, kind: u32) -> Made {
        let own = inputs.iter().all(|input| input.graph == self.number);
        require!(own, "an operand is of another MPSGraph");
        let inputs = inputs.iter().map(|input| input.node.clone()).collect();
        let node = std::sync::Arc::new(Node { operation, inputs, shape, kind });
        Some(Ref::new(Tensor { graph: self.number, node }))
    }

    fn placeholder(this: &Ref<Self>, shape: Option<Ref<NsArray>>, kind: u32, _: Name) -> Made {
        const METHOD: &str = "-[MPSGraph placeholderWithShape:dataType:name:]:";
        let shape = shape.as_ref().and_then(sizes);
        require!(
            shape.as_ref().is_some_and(|shape| !shape.contains(&0)),
            "{METHOD} dynamic shapes are not supported"
        );
        require!(exists(kind), "{METHOD} there is no type {kind:#x}");
        this.add(Operation::Placeholder, &[], shape?, kind)
    }

    fn constant(this: &Ref<Self>, value: f64, shape: Vec<usize>, kind: u32) -> Made {
        require!(exists(kind), "-[MPSGraph constantWithScalar:dataType:]: there is no type {kind:#x}");
        this.add(Operation::Constant(super::tensor::rounded(value, kind)), &[], shape, kind)
    }

    fn cast(this: &Ref<Self>, x: Ref<Tensor>, kind: u32, _: Name) -> Made {
        require!(exists(kind), "-[MPSGraph castTensor:toType:name:]: there is no type {kind:#x}");
        this.add(Operation::Cast, &[&x], x.node.shape.clone(), kind)
    }

    fn reshape(this: &Ref<Self>, x: Ref<Tensor>, shape: Ref<NsArray>, _: Name) -> Made {
        let shape = sizes(&shape).unwrap_or_default();
        let fits = shape.iter().product::<usize>() == x.node.len();
        require!(fits, "-[MPSGraph reshapeTensor:withShape:name:]: {:?} to {shape:?}", x.node.shape);
        this.add(Operation::Reshape, &[&x], shape, x.node.kind)
    }

    fn exchange(this: &Ref<Self>, x: Ref<Tensor>, one: usize, other: usize, _: Name) -> Made {
        let mut shape = x.node.shape.clone();
        let rank = shape.len();
        require!(
            one < rank && other < rank,
            "-[MPSGraph transposeTensor:dimension:withDimension:name:]: axes {one} and {other} of {rank}"
        );
        shape.swap(one, other);
        this.add(Operation::Exchange(one, other), &[&x], shape, x.node.kind)
    }

    fn broadcast(this: &Ref<Self>, x: Ref<Tensor>, shape: Ref<NsArray>, _: Name) -> Made {
        let shape = sizes(&shape).unwrap_or_default();
        let fits = broadcast(&x.node.shape, &shape).is_some_and(|both| both == shape);
        require!(fits, "-[MPSGraph broadcastTensor:toShape:name:]: {:?} to {shape:?}", x.node.shape);
        this.add(Operation::Broadcast, &[&x], shape, x.node.kind)
    }

    fn unary(this: &Ref<Self>, of: fn(f64) -> f64, x: &Ref<Tensor>) -> Made {
        require!(is_float(x.node.kind), "an MPSGraph function of elements of type {:#x}", x.node.kind);
        this.add(Operation::Unary(of), &[x], x.node.shape.clone(), x.node.kind)
    }

    fn binary(
        this: &Ref<Self>,
        of: fn(f64, f64) -> f64,
        [left, right]: [&Ref<Tensor>; 2],
        kind: Option<u32>,
    ) -> Made {
        let (x, y) = (&left.node, &right.node);
        require!(x.kind == y.kind, "an MPSGraph operation of {:#x} and {:#x}", x.kind, y.kind);
        let shape = broadcast(&x.shape, &y.shape);
        require!(shape.is_some(), "an MPSGraph operation of shapes {:?} and {:?}", x.shape, y.shape);
        this.add(Operation::Binary(of), &[left, right], shape?, kind.unwrap_or(x.kind))
    }

    fn select(this: &Ref<Self>, is: Ref<Tensor>, yes: Ref<Tensor>, no: Ref<Tensor>, _: Name) -> Made {
        const METHOD: &str = "-[MPSGraph selectWithPredicateTensor:…]:";
        let kinds = [is.node.kind, yes.node.kind, no.node.kind];
        require!(kinds[0] == BOOL && kinds[1] == kinds[2], "{METHOD} types {kinds:x?}");
        let shape = broadcast(&yes.node.shape, &no.node.shape);
        let shape = shape.and_then(|shape| broadcast(&is.node.shape, &shape));
        require!(shape.is_some(), "{METHOD} the shapes do not fit");
        this.add(Operation::Select, &[&is, &yes, &no], shape?, kinds[1])
    }

    fn product(this: &Ref<Self>, left: Ref<Tensor>, right: Ref<Tensor>, _: Name) -> Made {
        const METHOD: &str = "-[MPSGraph matrixMultiplicationWithPrimaryTensor:secondaryTensor:name:]:";
        let (x, y) = (&left.node, &right.node);
        require!(x.kind == y.kind && is_float(x.kind), "{METHOD} types {:#x} and {:#x}", x.kind, y.kind);
        let (a, b) = (&x.shape, &y.shape);
        let ranks = a.len() >= 2 && b.len() >= 2;
        require!(ranks && a[a.len() - 1] == b[b.len() - 2], "{METHOD} shapes {a:?} and {b:?}");
        let batch = broadcast(&a[..a.len() - 2], &b[..b.len() - 2]);
        require!(batch.is_some(), "{METHOD} shapes {a:?} and {b:?}");
        let shape = [&batch?[..], &[a[a.len() - 2], b[b.len() - 1]]].concat();
        this.add(Operation::Product, &[&left, &right], shape, x.kind)
    }

    /// Axes may be negative, to count from the last one.
    fn axes(x: &Tensor, axes: &[i64]) -> Option<Vec<usize>> {
        let rank = i64::try_from(x.node.shape.len()).ok()?;
        let axis = |axis: &i64| usize::try_from(if *axis < 0 { axis + rank } else { *axis }).ok();
        let axes: Vec<usize> = axes.iter().map(axis).collect::<Option<_>>()?;
        axes.iter().all(|axis| *axis < x.node.shape.len()).then_some(axes)
    }

    fn over(
        this: &Ref<Self>,
        method: &str,
        x: &Ref<Tensor>,
        axes: &[i64],
        of: impl FnOnce(Vec<usize>) -> Operation,
        more: &[&Ref<Tensor>],
    ) -> Made {
        let known = Self::axes(x, axes);
        require!(known.is_some() && is_float(x.node.kind), "{method} axes {axes:?} of {:?}", x.node.shape);
        let axes = known?;
        let mut shape = x.node.shape.clone();
        axes.iter().for_each(|axis| shape[*axis] = 1);
        let inputs: Vec<_> = [x].into_iter().chain(more.iter().copied()).collect();
        this.add(of(axes), &inputs, shape, x.node.kind)
    }

    fn mean(this: &Ref<Self>, x: Ref<Tensor>, axes: Ref<NsArray>, _: Name) -> Made {
        let axes = whole(&axes).unwrap_or_default();
        let of = |axes| Operation::Reduce(Reduction::Mean, axes);
        Self::over(this, "-[MPSGraph meanOfTensor:axes:name:]:", &x, &axes, of, &[])
    }

    fn variance(this: &Ref<Self>, x: Ref<Tensor>, mean: Ref<Tensor>, axes: Ref<NsArray>, _: Name) -> Made {
        const METHOD: &str = "-[MPSGraph varianceOfTensor:meanTensor:axes:name:]:";
        let axes = whole(&axes).unwrap_or_default();
        let made = Self::over(this, METHOD, &x, &axes, Operation::Variance, &[&mean])?;
        require!(made.node.shape == mean.node.shape, "{METHOD} the mean is {:?}", mean.node.shape);
        Some(made)
    }

    #[allow(clippy::too_many_arguments)] // as the method has them
    fn normalize(
        this: &Ref<Self>,
        x: Ref<Tensor>,
        mean: Ref<Tensor>,
        variance: Ref<Tensor>,
        gamma: Option<Ref<Tensor>>,
        beta: Option<Ref<Tensor>>,
        epsilon: f32,
        _: Name,
    ) -> Made {
        const METHOD: &str = "-[MPSGraph normalizationWithTensor:…]:";
        let parameters: Vec<&Ref<Tensor>> =
            [&mean, &variance].into_iter().chain(gamma.as_ref()).chain(beta.as_ref()).collect();
        for parameter in &parameters {
            let (own, wanted) = (&parameter.node, &x.node);
            let fits = broadcast(&own.shape, &wanted.shape).is_some_and(|shape| shape == wanted.shape);
            require!(fits && own.kind == wanted.kind, "{METHOD} {:?} beside {:?}", own.shape, wanted.shape);
        }
        let operation =
            Operation::Normalize { epsilon: epsilon.into(), gamma: gamma.is_some(), beta: beta.is_some() };
        let inputs: Vec<_> = [&x].into_iter().chain(parameters).collect();
        this.add(operation, &inputs, x.node.shape.clone(), x.node.kind)
    }

    fn softmax(this: &Ref<Self>, x: Ref<Tensor>, axis: isize, _: Name) -> Made {
        let axes = Self::axes(&x, &[axis as i64]);
        require!(
            axes.is_some() && is_float(x.node.kind),
            "-[MPSGraph softMaxWithTensor:axis:name:]: axis {axis}"
        );
        this.add(Operation::Softmax(axes?[0]), &[&x], x.node.shape.clone(), x.node.kind)
    }

    fn band(this: &Ref<Self>, x: Ref<Tensor>, lower: isize, upper: isize, _: Name) -> Made {
        require!(x.node.shape.len() >= 2, "-[MPSGraph bandPartWithTensor:…]: rank {}", x.node.shape.len());
        this.add(Operation::Band(lower as i64, upper as i64), &[&x], x.node.shape.clone(), x.node.kind)
    }

    fn convolve(this: &Ref<Self>, x: Ref<Tensor>, weights: Ref<Tensor>, of: &Convolution) -> Made {
        let kinds = [x.node.kind, weights.node.kind];
        require!(kinds[0] == kinds[1] && is_float(kinds[0]), "an MPSGraph convolution of types {kinds:x?}");
        let result = of.result(&x.node.shape, &weights.node.shape);
        require!(result.is_ok(), "an MPSGraph convolution: {:?}", result.err());
        this.add(Operation::Convolve(of.clone()), &[&x, &weights], result.ok()?, kinds[0])
    }

    fn transpose(
        this: &Ref<Self>,
        gradient: Ref<Tensor>,
        weights: Ref<Tensor>,
        shape: &Ref<NsArray>,
        of: &Convolution,
    ) -> Made {
        let kinds = [gradient.node.kind, weights.node.kind];
        require!(kinds[0] == kinds[1] && is_float(kinds[0]), "an MPSGraph convolution of types {kinds:x?}");
        let shape = sizes(shape).unwrap_or_default();
        let result = of.result(&shape, &weights.node.shape);
        let fits = result.as_ref().is_ok_and(|result| *result == gradient.node.shape);
        require!(fits, "an MPSGraph convolution of {shape:?} is {result:?}, not {:?}", gradient.node.shape);
        this.add(Operation::Transpose(of.clone()), &[&gradient, &weights], shape, kinds[0])
    }

    fn attend(this: &Ref<Self>, inputs: [&Ref<Tensor>; 3], mask: Option<Ref<Tensor>>, scale: f32) -> Made {
        const METHOD: &str = "-[MPSGraph scaledDotProductAttentionWithQueryTensor:…]:";
        let [q, k, v] = inputs.map(|input| &input.node.shape);
        let kind = inputs[0].node.kind;
        let kinds = inputs.iter().all(|input| input.node.kind == kind) && is_float(kind);
        require!(kinds && [q, k, v].iter().all(|of| of.len() == 4), "{METHOD} {q:?}, {k:?} and {v:?}");
        let heads = |of: &[usize]| broadcast(&of[..2], &q[..2]).is_some_and(|both| both == q[..2]);
        // "valueTensor V with shape [B, Hv, Nkv, F]": F is that of queries and keys.
        let fits = heads(k) && heads(v) && k[3] == q[3] && v[3] == q[3] && k[2] == v[2];
        require!(fits, "{METHOD} {q:?}, {k:?} and {v:?}");
        if let Some(mask) = &mask {
            let scores = [q[0], q[1], q[2], k[2]];
            let fits = broadcast(&mask.node.shape, &scores).is_some_and(|both| both == scores);
            require!(fits && mask.node.kind == kind, "{METHOD} a mask of {:?}", mask.node.shape);
        }
        let shape = [&q[..3], &v[3..]].concat();
        let inputs: Vec<_> = inputs.into_iter().chain(mask.as_ref()).collect();
        this.add(Operation::Attend { scale: scale.into() }, &inputs, shape, kind)
    }
}

pub fn register() {
    let class = Declaration::<Graph>::new()
        .makes_default()
        .property("options", |graph: &Graph| &graph.options)
        .method("placeholderWithShape:dataType:name:", Graph::placeholder)
        .method("constantWithScalar:dataType:", |this: &Ref<Graph>, value: f64, kind: u32| {
            Graph::constant(this, value, vec![1], kind)
        })
        .method(
            "constantWithScalar:shape:dataType:",
            |this: &Ref<Graph>, value: f64, shape: Ref<NsArray>, kind: u32| {
                Graph::constant(this, value, sizes(&shape).unwrap_or_default(), kind)
            },
        )
        .method("castTensor:toType:name:", Graph::cast)
        .method("reshapeTensor:withShape:name:", Graph::reshape)
        .method("transposeTensor:dimension:withDimension:name:", Graph::exchange)
        .method("broadcastTensor:toShape:name:", Graph::broadcast)
        .method("selectWithPredicateTensor:truePredicateTensor:falsePredicateTensor:name:", Graph::select)
        .method("matrixMultiplicationWithPrimaryTensor:secondaryTensor:name:", Graph::product)
        .method("meanOfTensor:axes:name:", Graph::mean)
        .method("varianceOfTensor:meanTensor:axes:name:", Graph::variance)
        .method(
            "normalizationWithTensor:meanTensor:varianceTensor:gammaTensor:betaTensor:epsilon:name:",
            Graph::normalize,
        )
        .method("softMaxWithTensor:axis:name:", Graph::softmax)
        .method("bandPartWithTensor:numLower:numUpper:name:", Graph::band)
        .method(
            "reductionSumWithTensor:axis:name:",
            |this: &Ref<Graph>, x: Ref<Tensor>, axis: isize, _: Name| {
                let of = |axes| Operation::Reduce(Reduction::Sum, axes);
                Graph::over(
                    this,
                    "-[MPSGraph reductionSumWithTensor:axis:name:]:",
                    &x,
                    &[axis as i64],
                    of,
                    &[],
                )
            },
        )
        .method(
            "reductionMaximumWithTensor:axis:name:",
            |this: &Ref<Graph>, x: Ref<Tensor>, axis: isize, _: Name| {
                let of = |axes| Operation::Reduce(Reduction::Maximum, axes);
                Graph::over(
                    this,
                    "-[MPSGraph reductionMaximumWithTensor:axis:name:]:",
                    &x,
                    &[axis as i64],
                    of,
                    &[],
                )
            },
        );
    let class = elements(class)
        .method(
            "convolution2DWithSourceTensor:weightsTensor:descriptor:name:",
            |this: &Ref<Graph>, x: Ref<Tensor>, weights: Ref<Tensor>, of: Ref<Images>, _: Name| {
                Graph::convolve(this, x, weights, &of.0)
            },
        )
        .method(
            "convolution2DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:forwardConvolutionDescriptor:name:",
            |this: &Ref<Graph>, x: Ref<Tensor>, weights: Ref<Tensor>, shape: Ref<NsArray>, of: Ref<Images>, _: Name| {
                Graph::transpose(this, x, weights, &shape, &of.0)
            },
        );
    class
        .when(os_version() >= super::VOLUMES, |class| {
            class
                .method(
                    "convolution3DWithSourceTensor:weightsTensor:descriptor:name:",
                    |this: &Ref<Graph>, x: Ref<Tensor>, weights: Ref<Tensor>, of: Ref<Volumes>, _: Name| {
                        Graph::convolve(this, x, weights, &of.0)
                    },
                )
                .method(
                    "convolution3DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:forwardConvolutionDescriptor:name:",
                    |this: &Ref<Graph>, x: Ref<Tensor>, weights: Ref<Tensor>, shape: Ref<NsArray>, of: Ref<Volumes>, _: Name| {
                        Graph::transpose(this, x, weights, &shape, &of.0)
                    },
                )
        })
        .when(os_version() >= super::ATTENTION, |class| {
            class
                .method(
                    "scaledDotProductAttentionWithQueryTensor:keyTensor:valueTensor:maskTensor:scale:name:",
                    |this: &Ref<Graph>, q: Ref<Tensor>, k: Ref<Tensor>, v: Ref<Tensor>, mask: Option<Ref<Tensor>>, scale: f32, _: Name| {
                        Graph::attend(this, [&q, &k, &v], mask, scale)
                    },
                )
        })
        .when(os_version() >= super::EXECUTABLES, |class| {
            class.method(
                "compileWithDevice:feeds:targetTensors:targetOperations:compilationDescriptor:",
                Executable::compile,
            )
        })
        .register();
}

/// Operations of each element.
fn elements(class: Declaration<Graph>) -> Declaration<Graph> {
    macro_rules! unary {
        ($class:expr, $($name:literal => $of:expr),* $(,)?) => {
            $class$(.method($name, |this: &Ref<Graph>, x: Ref<Tensor>, _: Name| Graph::unary(this, $of, &x)))*
        };
    }
    macro_rules! binary {
        ($class:expr, $($name:literal => $of:expr, $kind:expr);* $(;)?) => {
            $class$(.method($name, |this: &Ref<Graph>, x: Ref<Tensor>, y: Ref<Tensor>, _: Name| {
                Graph::binary(this, $of, [&x, &y], $kind)
            }))*
        };
    }
    let class = unary!(
        class,
        "reLUWithTensor:name:" => |x| x.max(0.0),
        "tanhWithTensor:name:" => f64::tanh,
        "exponentWithTensor:name:" => f64::exp,
        "logarithmWithTensor:name:" => f64::ln,
        "squareWithTensor:name:" => |x| x * x,
        "squareRootWithTensor:name:" => f64::sqrt,
        "reciprocalWithTensor:name:" => |x| 1.0 / x,
    );
    binary!(
        class,
        "additionWithPrimaryTensor:secondaryTensor:name:" => |x, y| x + y, None;
        "subtractionWithPrimaryTensor:secondaryTensor:name:" => |x, y| x - y, None;
        "multiplicationWithPrimaryTensor:secondaryTensor:name:" => |x, y| x * y, None;
        "divisionWithPrimaryTensor:secondaryTensor:name:" => |x, y| x / y, None;
        "equalWithPrimaryTensor:secondaryTensor:name:" => |x, y| f64::from(u8::from(x == y)), Some(BOOL);
    )
}
