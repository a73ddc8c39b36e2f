//! [`MessageQueue`]: a bounded queue of messages between kernels, in device memory.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use elinvar_driver::{Error, Result};

use crate::launch::args::{Element, Value};
use crate::{Arg, Buffer, Device};

/// Size of `elinvar::queue` without its slots.
const HEADER: usize = 192;

/// A bounded queue for messages of type `T`, with any number of producers and consumers: an argument for a parameter
/// `device elinvar::queue<T>&` of the header `<elinvar/queue>`.
///
/// `try_push` and `try_pop` may be called by any thread of any kernel. A threadgroup of a resident kernel waits for room or for a message by
/// `inbox.push(queue, message)` and `inbox.pop(queue, message)`.
pub struct MessageQueue<T> {
    memory: Buffer<u8>,
    capacity: u64,
    messages: PhantomData<fn() -> T>,
}

impl<T: Pod> MessageQueue<T> {
    /// Creates a queue for at most `capacity` messages, a power of two.
    ///
    /// # Errors
    /// `InvalidArgument` for another capacity, or a type that is aligned to more than 8 bytes; otherwise as [`Device::buffer`].
    pub fn new(device: &Device, capacity: usize) -> Result<Self> {
        if !capacity.is_power_of_two() {
            return Err(Error::invalid(format!("a queue for {capacity} messages: not a power of two")));
        }
        if align_of::<T>() > 8 {
            let (name, align) = (std::any::type_name::<T>(), align_of::<T>());
            return Err(Error::invalid(format!(
                "messages of type `{name}`: aligned to {align} bytes, at most 8 allowed"
            )));
        }
        let slot = 8 + size_of::<T>().next_multiple_of(8);
        let bytes = capacity.checked_mul(slot).and_then(|bytes| bytes.checked_add(HEADER));
        let bytes = bytes
            .ok_or_else(|| Error::invalid(format!("a queue for {capacity} messages of {slot} bytes")))?;
        let mut content = vec![0_u8; bytes];
        content[128..136].copy_from_slice(&(capacity as u64).to_ne_bytes());
        let memory = device.buffer_with_data(&content)?;
        Ok(Self { memory, capacity: capacity as u64, messages: PhantomData })
    }

    /// Maximum number of messages.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl<T: Pod> From<&MessageQueue<T>> for Arg {
    fn from(queue: &MessageQueue<T>) -> Self {
        let element = Element::Queue { message: size_of::<T>() as u64 };
        Self { value: Value::Memory { span: queue.memory.span.clone(), element, writable: true } }
    }
}

impl<T> fmt::Debug for MessageQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageQueue({})", self.capacity)
    }
}
