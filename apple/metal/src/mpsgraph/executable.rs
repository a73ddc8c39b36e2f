//! [`Executable`]: [`MPSGraphExecutable`](https://developer.apple.com/documentation/metalperformanceshadersgraph/mpsgraphexecutable): a
//! graph that is compiled for shapes and types of its feeds; and the classes that compilation takes.
//!
//! The order of the feeds is the executable's, here that of the dictionary's entries reversed, because nothing is documented about it.

use std::sync::Arc;

use elinvar_objc::foundation::{NsArray, NsDictionary, os_version};
use elinvar_objc::{Declaration, Object, Property, Ref};

use super::array::{TensorData, View};
use super::buffer::ContinuedBuffer;
use super::evaluate::Evaluation;
use super::graph::Graph;
use super::operations::Operation;
use super::tensor::{Node, Tensor, sizes};
use crate::commands::pass::{Op, Pass};
use crate::device::Device;
use crate::require;

/// `MPSGraphDevice`.
pub struct GraphDevice {
    device: Ref<Device>,
}

elinvar_objc::object!(GraphDevice, c"MPSGraphDevice");

/// `MPSGraphShapedType`.
pub struct ShapedType {
    shape: Option<Vec<usize>>,
    kind: u32,
}

elinvar_objc::object!(ShapedType, c"MPSGraphShapedType");

/// `MPSGraphCompilationDescriptor`.
pub struct CompilationDescriptor {
    /// By default, other processors than the GPU may compute as well (level 1).
    level: Property<u64>,
}

elinvar_objc::object!(CompilationDescriptor, c"MPSGraphCompilationDescriptor");

impl Default for CompilationDescriptor {
    fn default() -> Self {
        Self { level: Property::new(1) }
    }
}

/// `MPSGraphExecutable`.
pub struct Executable {
    device: Option<Ref<Device>>,
    feeds: Vec<Ref<Tensor>>,
    targets: Vec<Ref<Tensor>>,
    options: Property<u64>,
}

elinvar_objc::object!(Executable, c"MPSGraphExecutable");

fn tensors(array: &Ref<NsArray>) -> Option<Vec<Ref<Tensor>>> {
    array.objects().iter().map(Object::downcast).collect()
}

fn array<T: elinvar_objc::Declared>(of: &[Ref<T>]) -> Ref<NsArray> {
    NsArray::new(of.iter().map(|one| one.object().clone()))
}

/// The placeholders that a node depends on.
fn placeholders(node: &Arc<Node>, found: &mut Vec<Arc<Node>>) {
    if matches!(node.operation, Operation::Placeholder) && !found.iter().any(|known| Arc::ptr_eq(known, node))
    {
        found.push(node.clone());
    }
    node.inputs.iter().for_each(|input| placeholders(input, found));
}

impl Executable {
    /// `-[MPSGraph compileWithDevice:feeds:targetTensors:targetOperations:compilationDescriptor:]`.
    pub fn compile(
        graph: &Ref<Graph>,
        device: Option<Ref<GraphDevice>>,
        feeds: Ref<NsDictionary>,
        targets: Ref<NsArray>,
        operations: Option<Ref<NsArray>>,
        descriptor: Option<Ref<CompilationDescriptor>>,
    ) -> Option<Ref<Self>> {
        const METHOD: &str = "-[MPSGraph compileWithDevice:…]:";
        require!(
            operations.is_none_or(|list| list.objects().is_empty()),
            "{METHOD} no operation has no result"
        );
        let level = descriptor.map_or(1, |descriptor| descriptor.level.get());
        require!(level == 0, "{METHOD} level {level}: here is the GPU alone");
        let mut own = Vec::new();
        for (key, of) in feeds.pairs().iter().rev() {
            let (tensor, of) = (key.downcast::<Tensor>(), of.downcast::<ShapedType>());
            require!(tensor.is_some() && of.is_some(), "{METHOD} feeds are types of tensors");
            let (tensor, of) = (tensor?, of?);
            let is_placeholder = matches!(tensor.node.operation, Operation::Placeholder);
            require!(
                is_placeholder && tensor.graph == graph.number,
                "{METHOD} a feed is no placeholder of the graph"
            );
            let fits = of.kind == tensor.node.kind
                && of.shape.as_ref().is_none_or(|shape| *shape == tensor.node.shape);
            require!(fits, "{METHOD} {:?} is fed to a placeholder of {:?}", of.shape, tensor.node.shape);
            own.push(tensor);
        }
        let targets = tensors(&targets);
        require!(targets.as_ref().is_some_and(|all| !all.is_empty()), "{METHOD} no targets");
        let targets = targets?;
        let mut needed = Vec::new();
        targets.iter().for_each(|target| placeholders(&target.node, &mut needed));
        let fed = needed.iter().all(|node| own.iter().any(|feed| Arc::ptr_eq(&feed.node, node)));
        require!(fed, "{METHOD} a placeholder is not fed");
        let device = device.map(|device| device.device.clone());
        Some(Ref::new(Self { device, feeds: own, targets, options: Property::new(1) }))
    }

    /// The arrays for tensors, in their order, if they have their shapes and types.
    fn views(method: &str, tensors: &[Ref<Tensor>], data: &Ref<NsArray>) -> Option<Vec<View>> {
        let data = data.objects();
        require!(data.len() == tensors.len(), "{method} {} arrays for {} tensors", data.len(), tensors.len());
        let mut views = Vec::new();
        for (at, (data, tensor)) in data.iter().zip(tensors).enumerate() {
            let data = data.downcast::<TensorData>();
            require!(data.is_some(), "{method} array {at} is no MPSGraphTensorData");
            let (view, node) = (data?.0.clone(), &tensor.node);
            require!(
                view.shape == node.shape && view.kind == node.kind,
                "{method} array {at} is {:?} of {:#x}, not {:?} of {:#x}",
                view.shape,
                view.kind,
                node.shape,
                node.kind
            );
            views.push(view);
        }
        Some(views)
    }

    fn encode(
        this: &Ref<Self>,
        buffer: Ref<ContinuedBuffer>,
        inputs: Ref<NsArray>,
        results: Option<Ref<NsArray>>,
        _execution: Option<Object>,
    ) -> Option<Ref<NsArray>> {
        const METHOD: &str = "-[MPSGraphExecutable encodeToCommandBuffer:…]:";
        let root = buffer.root();
        require!(root.is_some(), "{METHOD} there is no command buffer");
        let root = root?;
        let own = this.device.as_ref().is_none_or(|device| device.is(&root.queue.device));
        require!(own, "{METHOD} the executable is for another device");
        require!(results.is_some(), "{METHOD} arrays for results are not made here");
        let results = results?;
        let from = Self::views(METHOD, &this.feeds, &inputs)?;
        let to = Self::views(METHOD, &this.targets, &results)?;
        let from: Vec<_> = from.iter().map(View::elements).collect();
        let to: Vec<_> = to.iter().map(View::elements).collect();
        let [feeds, targets] = [&this.feeds, &this.targets]
            .map(|list| list.iter().map(|one| one.node.clone()).collect::<Vec<_>>());
        let work = move || {
            let fed = feeds.iter().zip(&from).map(|(node, elements)| (node.clone(), elements.read()));
            let mut evaluation = Evaluation::new(fed);
            // Each result is written when it is known, as on a GPU: an input that is a result as well would change below.
            for (node, elements) in targets.iter().zip(&to) {
                elements.write(&evaluation.of(node));
            }
            Ok(())
        };
        root.add_pass(
            METHOD,
            Pass { label: "MPSGraph".into(), ops: vec![Op::Host(Box::new(work))], ..Pass::default() },
        );
        ContinuedBuffer::after_a_graph(&buffer);
        Some(results)
    }
}

pub fn register() {
    Declaration::<GraphDevice>::new()
        .class_method("deviceWithMTLDevice:", |device: Ref<Device>| Ref::new(GraphDevice { device }))
        .method("metalDevice", |this: &Ref<GraphDevice>| this.device.clone())
        .register();
    Declaration::<ShapedType>::new()
        .init("initWithShape:dataType:", |shape: Option<Ref<NsArray>>, kind: u32| {
            Some(ShapedType { shape: shape.as_ref().and_then(sizes), kind })
        })
        .register();
    if os_version() < super::EXECUTABLES {
        return;
    }
    Declaration::<CompilationDescriptor>::new()
        .makes_default()
        .when(os_version() >= super::LEVELS, |class| {
            class.property("optimizationLevel", |d: &CompilationDescriptor| &d.level)
        })
        .register();
    Declaration::<Executable>::new()
        .property("options", |executable: &Executable| &executable.options)
        .method("feedTensors", |this: &Ref<Executable>| array(&this.feeds))
        .method("targetTensors", |this: &Ref<Executable>| array(&this.targets))
        .method("encodeToCommandBuffer:inputsArray:resultsArray:executionDescriptor:", Executable::encode)
        .register();
}
