//! Primitives by NVIDIA's libraries: matrix products by cuBLASLt, convolution, pooling, batch normalization
//! and softmax by cuDNN. They are not part of the driver's
//! installation; what is not found is not among the device's primitives.
//!
//! The files are searched for when a device is created, and loaded at the first primitive. cuBLASLt has one handle for a device, and cuDNN
//! one for a stream.

mod algorithms;
mod blas;
mod dnn;
mod load;
pub(crate) mod nccl;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use elinvar_cache::Cache;
use elinvar_driver::primitive::{DataType, PrimitiveLibrary};
use elinvar_driver::{Error, Init, MemorySlice, Primitive, PrimitiveKind, Primitives, Result, Storage};
use parking_lot::Mutex;

use self::algorithms::Algorithms;
use self::blas::{Blas, Operands};
use self::dnn::{Dnn, Handle};
pub(crate) use self::load::find_file;
use self::load::{Status, find};
use crate::context::Context;
use crate::function::address;
use crate::memory::CudaMemory;

/// Bytes of device memory that a primitive may use besides its operands: what NVIDIA recommends for cuBLAS on Hopper, twice.
const WORKSPACE: u64 = 64 << 20;
/// Shapes that are kept prepared.
const MOST_PLANS: usize = 256;

/// The libraries of a device.
pub(crate) struct Libraries {
    context: Arc<Context>,
    cache: Cache,
    blas_file: Result<PathBuf, String>,
    dnn_file: Result<PathBuf, String>,
    blas: OnceLock<Result<Blas, String>>,
    dnn: OnceLock<Result<Dnn, String>>,
    /// A handle that only prepares operations.
    asking: Mutex<StreamLibraries>,
}

/// What the primitives of a stream, or of a recording, use.
#[derive(Default)]
pub(crate) struct StreamLibraries {
    dnn: Option<Handle>,
    workspace: Option<CudaMemory>,
}

impl Libraries {
    /// Searches for the libraries.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn find(context: &Arc<Context>, cache: &Cache) -> Self {
        let mut driver = 0;
        // SAFETY: it writes a number, which stays 0 on failure.
        let _known = unsafe { context.api.driver_version(&mut driver) };
        let majors = if driver >= 13_000 { &[13, 12][..] } else { &[12] };
        let (blas_file, dnn_file) = (find("cublasLt", majors), find("cudnn", &[9]));
        let (blas, dnn) = (OnceLock::new(), OnceLock::new());
        Self {
            context: context.clone(),
            cache: cache.clone(),
            blas_file,
            dnn_file,
            blas,
            dnn,
            asking: Mutex::default(),
        }
    }

    /// The primitives of the libraries that were found.
    pub(crate) fn primitives(&self) -> Primitives {
        let mut set = Primitives::of(PrimitiveLibrary::Nvidia);
        if self.blas_file.is_ok() {
            set = set.with_floats(PrimitiveKind::MatMul).with_floats(PrimitiveKind::MatVec);
            set = set.with(PrimitiveKind::MatMul, DataType::I8);
        }
        if self.dnn_file.is_ok() {
            let kinds = [
                PrimitiveKind::Convolution,
                PrimitiveKind::VolumeConvolution,
                PrimitiveKind::Pooling,
                PrimitiveKind::BatchNorm,
            ];
            // Its softmax is 0 where a row has an infinity, not NaN, and up to 1.4 units of the last place off for 16-bit types (9.19).
            set = kinds.into_iter().fold(set, Primitives::with_floats);
        }
        set
    }

    /// Names of the libraries, with their files or the reason why there is none.
    pub(crate) fn details(&self) -> [(&'static str, String); 3] {
        let text = |file: &Result<PathBuf, String>| match file {
            Ok(path) => path.display().to_string(),
            Err(reason) => reason.clone(),
        };
        [("cuBLASLt", text(&self.blas_file)), ("cuDNN", text(&self.dnn_file)), ("NCCL", text(&nccl::path()))]
    }

    /// Appends a primitive to a stream. The context must be current.
    pub(crate) fn encode(
        &self,
        own: &mut StreamLibraries,
        stream: CUstream,
        primitive: &Primitive,
        operands: &[MemorySlice],
    ) -> Result<()> {
        primitive.check(operands)?;
        self.primitives().expect(primitive, operands, &self.context.name)?;
        let addresses = operands.iter().map(address).collect::<Result<Vec<_>>>()?;
        let done = match primitive {
            Primitive::MatMul(p) => {
                let workspace = own.workspace(&self.context)?;
                let bias = p.bias.then(|| addresses[2]);
                self.blas()?.multiply(stream, p, &product_operands(&addresses, bias), workspace)
            }
            Primitive::MatVec(p) => {
                let workspace = own.workspace(&self.context)?;
                self.blas()?.multiply(stream, &p.as_mat_mul(), &product_operands(&addresses, None), workspace)
            }
            Primitive::Convolution(p) => {
                let workspace = own.workspace(&self.context)?;
                self.dnn(own, stream)?.convolve(p, &addresses, workspace)
            }
            Primitive::VolumeConvolution(p) => {
                let workspace = own.workspace(&self.context)?;
                self.dnn(own, stream)?.convolve_volumes(p, &addresses, workspace)
            }
            Primitive::BatchNorm(p) => self.dnn(own, stream)?.normalize(p, &addresses),
            Primitive::Pooling(p) => self.dnn(own, stream)?.pool(p, [addresses[0], addresses[1]]),
            other => {
                return Err(Error::unsupported(format!("the CUDA driver has no {}", other.kind().name())));
            }
        };
        done.map_err(|status| self.error(status, primitive))
    }

    /// Rejects a convolution for which cuDNN has no algorithm that works in the workspace.
    pub(crate) fn expect(&self, primitive: &Primitive) -> Result<()> {
        if !matches!(primitive, Primitive::Convolution(_) | Primitive::VolumeConvolution(_)) {
            return Ok(());
        }
        let _current = self.context.enter()?;
        let mut asking = self.asking.lock();
        // Nothing is appended to the default stream.
        let dnn = self.dnn(&mut asking, std::ptr::null_mut())?;
        let prepared = match primitive {
            Primitive::Convolution(p) => dnn.convolution_plan(p),
            Primitive::VolumeConvolution(p) => dnn.volume_plan(p),
            _ => return Ok(()),
        };
        prepared.map(drop).map_err(|status| self.error(status, primitive))
    }

    fn blas(&self) -> Result<&Blas> {
        let open = || {
            let path = self.blas_file.as_ref().map_err(Clone::clone)?;
            Blas::open(path, Algorithms::new(&self.cache, path, &self.context.name))
        };
        self.blas.get_or_init(open).as_ref().map_err(|reason| Error::unsupported(reason.clone()))
    }

    fn dnn<'o>(&self, own: &'o mut StreamLibraries, stream: CUstream) -> Result<&'o mut Handle> {
        let open = || {
            let path = self.dnn_file.as_ref().map_err(Clone::clone)?;
            Dnn::open(path, Algorithms::new(&self.cache, path, &self.context.name))
        };
        let dnn = self.dnn.get_or_init(open).as_ref().map_err(|reason| Error::unsupported(reason.clone()))?;
        let failed = |Status { call, code }| Error::Environment(format!("{call}: cuDNN status {code}"));
        match own.dnn {
            Some(ref mut handle) => Ok(handle),
            ref mut none => Ok(none.insert(dnn.handle(&self.context, stream).map_err(failed)?)),
        }
    }

    fn error(&self, Status { call, code }: Status, primitive: &Primitive) -> Error {
        let message =
            format!("device `{}`: {call} failed with status {code} for {primitive:?}", self.context.name);
        // `CUBLAS_STATUS_NOT_SUPPORTED`, and the range of `CUDNN_STATUS_NOT_SUPPORTED`.
        let lacks = (call.starts_with("cublas") && code == 15)
            || (call.starts_with("cudnn") && (3000..4000).contains(&code));
        if lacks { Error::unsupported(message) } else { Error::Environment(message) }
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        if let (Some(Ok(blas)), Ok(_current)) = (self.blas.get(), self.context.enter()) {
            blas.close();
        }
    }
}

impl StreamLibraries {
    fn workspace(&mut self, context: &Arc<Context>) -> Result<CUdeviceptr> {
        let memory = match self.workspace.take() {
            Some(memory) => memory,
            None => CudaMemory::new(context, WORKSPACE, Storage::Private, Init::Uninitialized)?,
        };
        self.workspace.insert(memory).at(0, WORKSPACE)
    }
}

fn product_operands(addresses: &[CUdeviceptr], bias: Option<CUdeviceptr>) -> Operands {
    Operands { left: addresses[0], right: addresses[1], bias, result: addresses[addresses.len() - 1] }
}
