//! Bindings of the CUDA driver API, loaded from the driver's library at run time.
//!
//! Result codes are integers, because a newer driver may return codes that cudarc's enum does not have, and invalid enum values are undefined
//! behavior. Names include the version suffix of the exported symbols. The calls are documented under their names in NVIDIA's CUDA
//! Driver API reference.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUlaunchConfig,
    CUlinkState, CUmemAccessDesc, CUmemAllocationProp, CUmodule, CUstream, CUuuid,
};

use crate::failure::Failure;

/// The oldest driver that has all of these calls, as a `cuDriverGetVersion` number.
const OLDEST: i32 = 12_000;

macro_rules! api {
    ($($method:ident = $symbol:literal ($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// Pointers to the driver's functions.
        pub(crate) struct Api {
            $($method: unsafe extern "C" fn($($ty),*) -> i32,)*
        }

        impl Api {
            fn load() -> Result<Self, String> {
                Ok(Self { $($method: symbol($symbol)?,)* })
            }

            $(
                /// # Safety
                #[doc = concat!("As the driver API asks of `", $symbol, "`.")]
                #[allow(unsafe_code, clippy::too_many_arguments)] // a C function
                #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // memory is shared between processes on Linux only
                #[inline]
                pub(crate) unsafe fn $method(&self, $($arg: $ty),*) -> Result<(), Failure> {
                    // SAFETY: the symbol has this type; the caller guarantees the preconditions of the call.
                    Failure::check($symbol, unsafe { (self.$method)($($arg),*) })
                }
            )*
        }
    };
}

api! {
    init = "cuInit"(flags: u32);
    driver_version = "cuDriverGetVersion"(version: *mut i32);
    error_name = "cuGetErrorName"(code: i32, name: *mut *const c_char);
    error_text = "cuGetErrorString"(code: i32, text: *mut *const c_char);
    device_count = "cuDeviceGetCount"(count: *mut i32);
    device = "cuDeviceGet"(device: *mut CUdevice, ordinal: i32);
    device_name = "cuDeviceGetName"(name: *mut c_char, bytes: i32, device: CUdevice);
    device_uuid = "cuDeviceGetUuid_v2"(uuid: *mut CUuuid, device: CUdevice);
    device_attribute = "cuDeviceGetAttribute"(value: *mut i32, attribute: u32, device: CUdevice);
    device_memory = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: CUdevice);
    can_access_peer = "cuDeviceCanAccessPeer"(can: *mut i32, device: CUdevice, peer: CUdevice);
    retain_context = "cuDevicePrimaryCtxRetain"(context: *mut CUcontext, device: CUdevice);
    release_context = "cuDevicePrimaryCtxRelease_v2"(device: CUdevice);
    push_context = "cuCtxPushCurrent_v2"(context: CUcontext);
    pop_context = "cuCtxPopCurrent_v2"(context: *mut CUcontext);
    priority_range = "cuCtxGetStreamPriorityRange"(least: *mut i32, greatest: *mut i32);
    enable_peer = "cuCtxEnablePeerAccess"(peer: CUcontext, flags: u32);
    memory_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    allocate = "cuMemAlloc_v2"(address: *mut CUdeviceptr, bytes: usize);
    free = "cuMemFree_v2"(address: CUdeviceptr);
    allocate_async = "cuMemAllocAsync"(address: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    free_async = "cuMemFreeAsync"(address: CUdeviceptr, stream: CUstream);
    allocate_host = "cuMemHostAlloc"(address: *mut *mut c_void, bytes: usize, flags: u32);
    free_host = "cuMemFreeHost"(address: *mut c_void);
    register_host = "cuMemHostRegister_v2"(address: *mut c_void, bytes: usize, flags: u32);
    unregister_host = "cuMemHostUnregister"(address: *mut c_void);
    host_device_pointer = "cuMemHostGetDevicePointer_v2"(to: *mut CUdeviceptr, from: *mut c_void, flags: u32);
    create_memory = "cuMemCreate"(handle: *mut u64, bytes: usize, properties: *const CUmemAllocationProp, flags: u64);
    release_memory = "cuMemRelease"(handle: u64);
    export_memory = "cuMemExportToShareableHandle"(file: *mut c_void, handle: u64, kind: u32, flags: u64);
    import_memory = "cuMemImportFromShareableHandle"(handle: *mut u64, file: *mut c_void, kind: u32);
    memory_granule = "cuMemGetAllocationGranularity"(bytes: *mut usize, properties: *const CUmemAllocationProp, option: u32);
    reserve_addresses = "cuMemAddressReserve"(address: *mut CUdeviceptr, bytes: usize, align: usize, at: CUdeviceptr, flags: u64);
    free_addresses = "cuMemAddressFree"(address: CUdeviceptr, bytes: usize);
    map_memory = "cuMemMap"(address: CUdeviceptr, bytes: usize, offset: usize, handle: u64, flags: u64);
    unmap_memory = "cuMemUnmap"(address: CUdeviceptr, bytes: usize);
    set_access = "cuMemSetAccess"(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    copy = "cuMemcpyAsync"(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    copy_to_host = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    copy_to_device = "cuMemcpyHtoDAsync_v2"(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    copy_peer = "cuMemcpyPeerAsync"(
        to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream,
    );
    set_u8 = "cuMemsetD8Async"(to: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    set_u16 = "cuMemsetD16Async"(to: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    set_u32 = "cuMemsetD32Async"(to: CUdeviceptr, value: u32, count: usize, stream: CUstream);
    set_rows_u8 = "cuMemsetD2D8Async"(
        to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream,
    );
    set_rows_u32 = "cuMemsetD2D32Async"(
        to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream,
    );
    create_stream = "cuStreamCreateWithPriority"(stream: *mut CUstream, flags: u32, priority: i32);
    destroy_stream = "cuStreamDestroy_v2"(stream: CUstream);
    wait_for_stream = "cuStreamSynchronize"(stream: CUstream);
    stream_waits = "cuStreamWaitEvent"(stream: CUstream, event: CUevent, flags: u32);
    begin_capture = "cuStreamBeginCapture_v2"(stream: CUstream, mode: u32);
    end_capture = "cuStreamEndCapture"(stream: CUstream, graph: *mut CUgraph);
    instantiate = "cuGraphInstantiateWithFlags"(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    launch_graph = "cuGraphLaunch"(exec: CUgraphExec, stream: CUstream);
    destroy_graph = "cuGraphDestroy"(graph: CUgraph);
    destroy_graph_exec = "cuGraphExecDestroy"(exec: CUgraphExec);
    create_event = "cuEventCreate"(event: *mut CUevent, flags: u32);
    destroy_event = "cuEventDestroy_v2"(event: CUevent);
    record = "cuEventRecord"(event: CUevent, stream: CUstream);
    query = "cuEventQuery"(event: CUevent);
    wait_for_event = "cuEventSynchronize"(event: CUevent);
    elapsed = "cuEventElapsedTime"(ms: *mut f32, from: CUevent, to: CUevent);
    load_module = "cuModuleLoadDataEx"(
        module: *mut CUmodule, image: *const c_void, count: u32, options: *mut u32, values: *mut *mut c_void,
    );
    unload_module = "cuModuleUnload"(module: CUmodule);
    variable = "cuModuleGetGlobal_v2"(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    link_create = "cuLinkCreate_v2"(count: u32, options: *mut u32, values: *mut *mut c_void, state: *mut CUlinkState);
    link_data = "cuLinkAddData_v2"(
        state: CUlinkState, kind: u32, data: *mut c_void, bytes: usize, name: *const c_char, count: u32, options: *mut u32,
        values: *mut *mut c_void,
    );
    link_file = "cuLinkAddFile_v2"(
        state: CUlinkState, kind: u32, path: *const c_char, count: u32, options: *mut u32, values: *mut *mut c_void,
    );
    link_complete = "cuLinkComplete"(state: CUlinkState, cubin: *mut *mut c_void, bytes: *mut usize);
    link_destroy = "cuLinkDestroy"(state: CUlinkState);
    function = "cuModuleGetFunction"(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    function_attribute = "cuFuncGetAttribute"(value: *mut i32, attribute: u32, function: CUfunction);
    set_function_attribute = "cuFuncSetAttribute"(function: CUfunction, attribute: u32, value: i32);
    launch = "cuLaunchKernel"(
        function: CUfunction, groups_x: u32, groups_y: u32, groups_z: u32, x: u32, y: u32, z: u32, shared: u32,
        stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    launch_with = "cuLaunchKernelEx"(
        config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    resident_blocks = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(
        blocks: *mut i32, function: CUfunction, threads: i32, shared: usize,
    );
}

/// Looks up a function of the driver's library by name.
#[allow(unsafe_code)] // a symbol of a library, of the type that the caller names
fn symbol<F: Copy>(name: &str) -> Result<F, String> {
    // SAFETY: `api` has checked that the library is loaded. The types above are those of `cuda.h`.
    let found = unsafe { sys::culib().get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| format!("the NVIDIA driver has no `{name}`: it is too old"))
}

/// The initialized driver of this machine, or the reason why it is unavailable.
pub(crate) fn api() -> Result<&'static Api, String> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(open).as_ref().map_err(Clone::clone)
}

#[allow(unsafe_code)] // C functions
fn open() -> Result<Api, String> {
    // SAFETY: loading the library runs its initializers, as intended.
    if !unsafe { sys::is_culib_present() } {
        return Err(format!(
            "there is no NVIDIA driver: its library `libcuda` cannot be loaded; an NVIDIA GPU needs NVIDIA's driver for CUDA {} or later",
            Version(OLDEST)
        ));
    }
    let api = Api::load()?;
    // SAFETY: no flags are defined.
    unsafe { api.init(0) }
        .map_err(|failure| format!("the NVIDIA driver failed to initialize: {}", failure.text(&api)))?;
    let mut version = 0;
    // SAFETY: it writes a number.
    unsafe { api.driver_version(&mut version) }.map_err(|failure| failure.text(&api))?;
    if version < OLDEST {
        return Err(format!(
            "the NVIDIA driver supports CUDA {}; {} is needed",
            Version(version),
            Version(OLDEST)
        ));
    }
    Ok(api)
}

/// A `cuDriverGetVersion` number as text.
pub(crate) struct Version(pub(crate) i32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_as_people_write_them() {
        assert_eq!(
            (Version(12_000).to_string(), Version(13_010).to_string()),
            ("12.0".into(), "13.1".into())
        );
    }

    #[test]
    fn a_machine_without_a_driver_says_so() {
        if let Err(reason) = api() {
            assert!(reason.contains("NVIDIA driver"), "{reason}");
        }
    }
}
