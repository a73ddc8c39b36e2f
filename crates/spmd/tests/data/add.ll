; out[i] = in[i] / i: one region, a division to guard.
target triple = "x86_64-pc-linux-gnu"

define void @__elinvar_entry(ptr %in, ptr %out) {
  %local = tail call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %group = tail call i32 @__elinvar_threadgroup_position_in_grid(i32 0)
  %size = tail call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 0)
  %first = mul i32 %group, %size
  %i = add i32 %first, %local
  %wide = zext i32 %i to i64
  %from = getelementptr inbounds i32, ptr %in, i64 %wide
  %value = load i32, ptr %from, align 4
  %quotient = sdiv i32 %value, %i
  %to = getelementptr inbounds i32, ptr %out, i64 %wide
  store i32 %quotient, ptr %to, align 4
  ret void
}

declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare i32 @__elinvar_threadgroup_position_in_grid(i32)
declare i32 @__elinvar_dispatch_threads_per_threadgroup(i32)
