//! Counters: [`MTLCounterSet`](https://developer.apple.com/documentation/metal/mtlcounterset), of which there is only the timestamp set;
//! [`MTLCounterSampleBuffer`](https://developer.apple.com/documentation/metal/mtlcountersamplebuffer); and sample attachments of
//! passes.

use elinvar_driver::TimestampSlot;
use elinvar_objc::foundation::{NsArray, NsData, NsError, NsString};
use elinvar_objc::{Declaration, NsRange, Out, Property, Ref};
use parking_lot::Mutex;

use crate::commands::pass::Op;
use crate::device::Device;
use crate::device::profile::Samples;
use crate::require;
use crate::validation::fault_injection::Site;
use crate::values::{Storage, within};

/// `MTLCounterErrorValue`: the value of a sample that was not taken.
const NONE: u64 = u64::MAX;
/// `MTLCounterDontSample`.
const DONT_SAMPLE: usize = usize::MAX;
/// Number of sample attachments of a pass.
const ATTACHMENTS: usize = 4;

elinvar_objc::string_constants! {
    MTLCommonCounterTimestamp = "GPUTimestamp",
    MTLCommonCounterSetTimestamp = "timestamp",
    MTLCommonCounterSetStageUtilization = "stageutilization",
    MTLCommonCounterSetStatistic = "statistic",
    MTLCounterErrorDomain = "MTLCounterErrorDomain",
}

/// `MTLCounter`.
struct Counter;

elinvar_objc::object!(Counter, c"ElinvarMTLCounter");

/// `MTLCounterSet`.
pub struct CounterSet;

elinvar_objc::object!(CounterSet, c"ElinvarMTLCounterSet");

/// `counterSets` of a device; nil if it has none, as documented.
pub fn sets(device: &Ref<Device>) -> Option<Ref<NsArray>> {
    let has = device.profile.samples != Samples::Nowhere;
    has.then(|| NsArray::new([Ref::new(CounterSet).into_object()]))
}

/// How a sample buffer is to be.
#[derive(Clone, Default)]
pub struct SampleDescriptor {
    set: Property<Option<Ref<CounterSet>>>,
    label: Property<Option<Ref<NsString>>>,
    storage: Property<usize>,
    count: Property<usize>,
}

elinvar_objc::object!(SampleDescriptor, c"MTLCounterSampleBufferDescriptor");

/// Times.
pub struct SampleBuffer {
    device: Ref<Device>,
    label: Option<Ref<NsString>>,
    shared: bool,
    samples: Vec<TimestampSlot>,
}

elinvar_objc::object!(SampleBuffer, c"ElinvarMTLCounterSampleBuffer");

impl SampleBuffer {
    /// `newCounterSampleBufferWithDescriptor:error:`.
    pub fn with_descriptor(
        device: &Ref<Device>,
        descriptor: Ref<SampleDescriptor>,
        error: Out,
    ) -> Option<Ref<Self>> {
        const METHOD: &str = "newCounterSampleBufferWithDescriptor:error:";
        require!(descriptor.set.get().is_some(), "{METHOD} the descriptor has no counter set");
        let count = descriptor.count.get();
        // 32 KiB of samples, the known limit of devices; a guess.
        let failure =
            |code, message: &str| error.catch(Err(NsError::new("MTLCounterErrorDomain", code, message)));
        if device.faults.now(Site::Object).is_some() {
            return failure(2, "no sample buffer (injected by a test)");
        }
        if count == 0 || count > 4096 {
            return failure(
                1,
                &format!("a sample buffer cannot have {count} samples: 1 to 4096 are allowed"),
            );
        }
        let storage = Storage::of(descriptor.storage.get());
        require!(
            matches!(storage, Some(Storage::Shared | Storage::Private)),
            "{METHOD} sample buffers are shared or private"
        );
        Some(Ref::new(Self {
            device: device.clone(),
            label: descriptor.label.get(),
            shared: storage == Some(Storage::Shared),
            samples: (0..count).map(|_| TimestampSlot::new()).collect(),
        }))
    }

    /// Number of samples.
    pub fn count(&self) -> usize {
        self.samples.len()
    }

    /// Takes a sample. An injected fault gives the error value.
    pub fn take(&self, index: usize) {
        match self.device.faults.now(Site::Sample) {
            Some(_) => self.samples[index].clear(),
            None => self.samples[index].set(self.device.profile.clock.ticks(self.device.now_ns())),
        }
    }

    /// Samples as bytes, 64 bits each.
    pub fn bytes(&self, range: NsRange) -> Vec<u8> {
        let samples = self.samples.iter().skip(range.location).take(range.length);
        samples.flat_map(|sample| sample.ns().unwrap_or(NONE).to_ne_bytes()).collect()
    }

    fn resolve(this: &Ref<Self>, range: NsRange) -> Option<Ref<NsData>> {
        let count = this.count();
        require!(within(range, count), "resolveCounterRange: {range:?} is not within {count} samples");
        require!(this.shared, "resolveCounterRange: the sample buffer is private");
        Some(NsData::new(this.bytes(range)))
    }
}

/// A sample attachment of a pass.
#[derive(Clone)]
struct Attachment {
    samples: Property<Option<Ref<SampleBuffer>>>,
    start: Property<usize>,
    end: Property<usize>,
}

elinvar_objc::object!(Attachment, c"ElinvarMTLSampleBufferAttachmentDescriptor");

impl Default for Attachment {
    fn default() -> Self {
        Self {
            samples: Property::default(),
            start: Property::new(DONT_SAMPLE),
            end: Property::new(DONT_SAMPLE),
        }
    }
}

/// The attachments.
#[derive(Default)]
pub struct Attachments(Mutex<[Option<Ref<Attachment>>; ATTACHMENTS]>);

elinvar_objc::object!(Attachments, c"ElinvarMTLSampleBufferAttachmentDescriptorArray");

impl Attachments {
    /// Samples to take at the start and the end of the pass.
    pub fn ops(&self) -> (Vec<Op>, Vec<Op>) {
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for attachment in self.0.lock().iter().flatten() {
            let Some(samples) = attachment.samples.get() else { continue };
            for (index, ops) in [(attachment.start.get(), &mut starts), (attachment.end.get(), &mut ends)] {
                if index != DONT_SAMPLE {
                    let count = samples.count();
                    require!(index < count, "a sample buffer attachment: index {index} of {count}");
                    ops.push(Op::Sample(samples.clone(), index));
                }
            }
        }
        (starts, ends)
    }

    fn at(this: &Ref<Self>, index: usize) -> Option<Ref<Attachment>> {
        require!(index < ATTACHMENTS, "sampleBufferAttachments: index {index} of {ATTACHMENTS}");
        let mut places = this.0.lock();
        Some(places[index].get_or_insert_with(|| Ref::new(Attachment::default())).clone())
    }
}

pub fn register() {
    register_constants();
    Declaration::<Counter>::new()
        .follows(c"MTLCounter")
        .method("name", |_: &Ref<Counter>| NsString::new("GPUTimestamp"))
        .register();
    Declaration::<CounterSet>::new()
        .follows(c"MTLCounterSet")
        .method("name", |_: &Ref<CounterSet>| NsString::new("timestamp"))
        .method("counters", |_: &Ref<CounterSet>| NsArray::new([Ref::new(Counter).into_object()]))
        .register();
    Declaration::<SampleDescriptor>::new()
        .makes_default()
        .copies()
        .property("counterSet", |d: &SampleDescriptor| &d.set)
        .property("label", |d: &SampleDescriptor| &d.label)
        .property("storageMode", |d: &SampleDescriptor| &d.storage)
        .property("sampleCount", |d: &SampleDescriptor| &d.count)
        .register();
    Declaration::<SampleBuffer>::new()
        .follows(c"MTLCounterSampleBuffer")
        .method("device", |this: &Ref<SampleBuffer>| this.device.clone())
        .method("label", |this: &Ref<SampleBuffer>| this.label.clone().unwrap_or_else(|| NsString::new("")))
        .method("sampleCount", |this: &Ref<SampleBuffer>| this.count())
        .method("resolveCounterRange:", SampleBuffer::resolve)
        .register();
    Declaration::<Attachment>::new()
        .property("sampleBuffer", |a: &Attachment| &a.samples)
        .property("startOfEncoderSampleIndex", |a: &Attachment| &a.start)
        .property("endOfEncoderSampleIndex", |a: &Attachment| &a.end)
        .register();
    Declaration::<Attachments>::new().method("objectAtIndexedSubscript:", Attachments::at).register();
}
