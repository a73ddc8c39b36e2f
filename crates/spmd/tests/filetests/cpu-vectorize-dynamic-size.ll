; RUN: vectorize group=dynamic
; The threadgroup's size is a value: it is loaded from the launch, and positions are counted. In a round of the reduction, iterations end
; early if all threads are in one row.
@partial = internal global [256 x float] undef, section "elinvar.threadgroup", align 16

define void @__elinvar_entry(ptr %in, ptr %out) {
  %x = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %y = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
  %sx = call i32 @__elinvar_threads_per_threadgroup(i32 0)
  %above = mul i32 %y, %sx
  %t = add i32 %above, %x
  %w = zext i32 %t to i64
  %mine = getelementptr [256 x float], ptr @partial, i64 0, i64 %w
  %from = getelementptr float, ptr %in, i64 %w
  %v = load float, ptr %from, align 4
  store float %v, ptr %mine, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  br label %loop

loop:
  %before = phi i32 [ %sx, %0 ], [ %step, %join ]
  %step = lshr i32 %before, 1
  %has = icmp ugt i32 %step, %t
  br i1 %has, label %then, label %join

then:
  %other = add nuw i32 %step, %t
  %o = zext i32 %other to i64
  %theirs = getelementptr [256 x float], ptr @partial, i64 0, i64 %o
  %a = load float, ptr %theirs, align 4
  %b = load float, ptr %mine, align 4
  %sum = fadd float %a, %b
  store float %sum, ptr %mine, align 4
  br label %join

join:
  call void @__elinvar_threadgroup_barrier(i32 2)
  %more = icmp ugt i32 %before, 3
  br i1 %more, label %loop, label %end

end:
  %p = getelementptr float, ptr %out, i64 %w
  %r = load float, ptr %mine, align 4
  store float %r, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare i32 @__elinvar_threads_per_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: define i32 @elinvar_threadgroups(ptr nocapture noundef readonly %launch, ptr noalias noundef align 64 %scratch, i64 noundef %begin, i64 noundef %end) nounwind null_pointer_is_valid {
; CHECK-NEXT: entry:
; CHECK-NEXT: %threadgroup = alloca [256 x float], align 64
; CHECK-NEXT: %arrived = alloca i32, align 4
; CHECK-NEXT: %args = load ptr, ptr %launch
; CHECK-NEXT: %0 = getelementptr ptr, ptr %args, i64 0
; CHECK-NEXT: %1 = load ptr, ptr %0
; CHECK-NEXT: %2 = getelementptr ptr, ptr %args, i64 1
; CHECK-NEXT: %3 = load ptr, ptr %2
; CHECK-NEXT: %4 = getelementptr i8, ptr %launch, i64 8
; CHECK-NEXT: %grid = load i32, ptr %4
; CHECK-NEXT: %5 = getelementptr i8, ptr %launch, i64 12
; CHECK-NEXT: %grid.1 = load i32, ptr %5
; CHECK-NEXT: %6 = getelementptr i8, ptr %launch, i64 16
; CHECK-NEXT: %grid.2 = load i32, ptr %6
; CHECK-NEXT: %7 = getelementptr i8, ptr %launch, i64 20
; CHECK-NEXT: %groups = load i32, ptr %7
; CHECK-NEXT: %8 = getelementptr i8, ptr %launch, i64 24
; CHECK-NEXT: %groups.1 = load i32, ptr %8
; CHECK-NEXT: %9 = getelementptr i8, ptr %launch, i64 28
; CHECK-NEXT: %groups.2 = load i32, ptr %9
; CHECK-NEXT: %10 = getelementptr i8, ptr %launch, i64 56
; CHECK-NEXT: %size = load i32, ptr %10
; CHECK-NEXT: %11 = getelementptr i8, ptr %launch, i64 60
; CHECK-NEXT: %size.1 = load i32, ptr %11
; CHECK-NEXT: %12 = getelementptr i8, ptr %launch, i64 64
; CHECK-NEXT: %size.2 = load i32, ptr %12
; CHECK-NEXT: %13 = mul nuw nsw i32 %size.1, %size.2
; CHECK-NEXT: %14 = add nuw nsw i32 %size, 7
; CHECK-NEXT: %15 = lshr i32 %14, 3
; CHECK-NEXT: %16 = and i32 %size, 7
; CHECK-NEXT: %17 = icmp eq i32 %16, 0
; CHECK-NEXT: %18 = icmp eq i32 %13, 1
; CHECK-NEXT: %19 = zext i32 %groups to i64
; CHECK-NEXT: %20 = zext i32 %groups.1 to i64
; CHECK-NEXT: %21 = urem i64 %begin, %19
; CHECK-NEXT: %22 = udiv i64 %begin, %19
; CHECK-NEXT: %23 = urem i64 %22, %20
; CHECK-NEXT: %24 = udiv i64 %22, %20
; CHECK-NEXT: %25 = trunc i64 %21 to i32
; CHECK-NEXT: %26 = trunc i64 %23 to i32
; CHECK-NEXT: %27 = trunc i64 %24 to i32
; CHECK-NEXT: %28 = alloca <8 x i1>
; CHECK-NEXT: %29 = alloca <8 x i1>
; CHECK-NEXT: %30 = alloca <8 x i1>
; CHECK-NEXT: %31 = alloca i32
; CHECK-NEXT: %32 = alloca i64
; CHECK-NEXT: %33 = alloca ptr
; CHECK-NEXT: %last = alloca i1, align 1
; CHECK-NEXT: %34 = alloca <8 x i1>
; CHECK-NEXT: %35 = alloca <8 x i1>
; CHECK-NEXT: %36 = alloca <8 x i1>
; CHECK-NEXT: %37 = alloca <8 x i1>
; CHECK-NEXT: %38 = alloca <8 x i1>
; CHECK-NEXT: %39 = alloca i32
; CHECK-NEXT: %40 = alloca i32
; CHECK-NEXT: %41 = alloca i32
; CHECK-NEXT: %42 = alloca <8 x i1>
; CHECK-NEXT: %last.1 = alloca i1, align 1
; CHECK-NEXT: %43 = alloca <8 x i1>
; CHECK-NEXT: %44 = alloca <8 x i1>
; CHECK-NEXT: %45 = alloca <8 x i1>
; CHECK-NEXT: %46 = alloca <8 x i1>
; CHECK-NEXT: %47 = alloca <8 x i1>
; CHECK-NEXT: br label %runs
; CHECK-NEXT: runs:
; CHECK-NEXT: %group.z = phi i32 [ %27, %entry ], [ %86, %78 ]
; CHECK-NEXT: %group.y = phi i32 [ %26, %entry ], [ %88, %78 ]
; CHECK-NEXT: %run.x = phi i32 [ %25, %entry ], [ %87, %78 ]
; CHECK-NEXT: %group.index = phi i64 [ %begin, %entry ], [ %80, %78 ]
; CHECK-NEXT: %48 = icmp ult i64 %group.index, %end
; CHECK-NEXT: br i1 %48, label %run, label %exit
; CHECK-NEXT: run:
; CHECK-NEXT: %49 = sub nuw i64 %end, %group.index
; CHECK-NEXT: %50 = sub nuw i32 %groups, %run.x
; CHECK-NEXT: %51 = zext i32 %50 to i64
; CHECK-NEXT: %52 = icmp ult i64 %49, %51
; CHECK-NEXT: %53 = trunc i64 %49 to i32
; CHECK-NEXT: %54 = select i1 %52, i32 %53, i32 %50
; CHECK-NEXT: %55 = add nuw i32 %run.x, %54
; CHECK-NEXT: %56 = mul nuw i32 %group.y, %size.1
; CHECK-NEXT: %57 = sub nuw i32 %grid.1, %56
; CHECK-NEXT: %58 = icmp uge i32 %57, %size.1
; CHECK-NEXT: %59 = select i1 %58, i32 %size.1, i32 %57
; CHECK-NEXT: %60 = mul nuw i32 %group.z, %size.2
; CHECK-NEXT: %61 = sub nuw i32 %grid.2, %60
; CHECK-NEXT: %62 = icmp uge i32 %61, %size.2
; CHECK-NEXT: %63 = select i1 %62, i32 %size.2, i32 %61
; CHECK-NEXT: %64 = and i1 %58, %62
; CHECK-NEXT: %65 = and i1 %64, %17
; CHECK-NEXT: br label %row
; CHECK-NEXT: row:
; CHECK-NEXT: %row.1 = phi i32 [ 0, %run ], [ %76, %75 ]
; CHECK-NEXT: br label %group
; CHECK-NEXT: group:
; CHECK-NEXT: %group.x = phi i32 [ %run.x, %row ], [ %73, %72 ]
; CHECK-NEXT: %66 = mul nuw i32 %group.x, %size
; CHECK-NEXT: %67 = sub nuw i32 %grid, %66
; CHECK-NEXT: %68 = icmp uge i32 %67, %size
; CHECK-NEXT: %69 = select i1 %68, i32 %size, i32 %67
; CHECK-NEXT: %70 = and i1 %65, %68
; CHECK-NEXT: br label %71
; CHECK-NEXT: 71:
; CHECK-NEXT: br label %89
; CHECK-NEXT: 72:
; CHECK-NEXT: %73 = add nuw i32 %group.x, 1
; CHECK-NEXT: %74 = icmp ult i32 %73, %55
; CHECK-NEXT: br i1 %74, label %group, label %75
; CHECK-NEXT: 75:
; CHECK-NEXT: %76 = add nuw i32 %row.1, 1
; CHECK-NEXT: %77 = icmp ult i32 %76, 1
; CHECK-NEXT: br i1 %77, label %row, label %78
; CHECK-NEXT: 78:
; CHECK-NEXT: %79 = zext i32 %54 to i64
; CHECK-NEXT: %80 = add nuw i64 %group.index, %79
; CHECK-NEXT: %81 = icmp eq i32 %55, %groups
; CHECK-NEXT: %82 = add i32 %group.y, 1
; CHECK-NEXT: %83 = select i1 %81, i32 %82, i32 %group.y
; CHECK-NEXT: %84 = icmp eq i32 %83, %groups.1
; CHECK-NEXT: %85 = add i32 %group.z, 1
; CHECK-NEXT: %86 = select i1 %84, i32 %85, i32 %group.z
; CHECK-NEXT: %87 = select i1 %81, i32 0, i32 %55
; CHECK-NEXT: %88 = select i1 %84, i32 0, i32 %83
; CHECK-NEXT: br label %runs
; CHECK-NEXT: exit:
; CHECK-NEXT: ret i32 0
; CHECK-NEXT: 89:
; CHECK-NEXT: store i32 0, ptr %arrived
; CHECK-NEXT: %90 = mul nuw nsw i32 %15, %13
; CHECK-NEXT: br label %99
; CHECK-NEXT: 91:
; CHECK-NEXT: store i32 0, ptr %arrived
; CHECK-NEXT: store i1 false, ptr %last
; CHECK-NEXT: %92 = mul nuw nsw i32 %15, %13
; CHECK-NEXT: br label %165
; CHECK-NEXT: 93:
; CHECK-NEXT: store i32 0, ptr %arrived
; CHECK-NEXT: %94 = getelementptr i8, ptr %scratch, i64 0
; CHECK-NEXT: %95 = load i32, ptr %94
; CHECK-NEXT: %96 = getelementptr i8, ptr %scratch, i64 64
; CHECK-NEXT: %97 = load i32, ptr %96
; CHECK-NEXT: store i1 false, ptr %last.1
; CHECK-NEXT: %98 = mul nuw nsw i32 %15, %13
; CHECK-NEXT: br label %305
; CHECK-NEXT: 99:
; CHECK-NEXT: %step = phi i32 [ 0, %89 ], [ %111, %101 ]
; CHECK-NEXT: %z = phi i32 [ 0, %89 ], [ %110, %101 ]
; CHECK-NEXT: %y = phi i32 [ 0, %89 ], [ %108, %101 ]
; CHECK-NEXT: %x = phi i32 [ 0, %89 ], [ %104, %101 ]
; CHECK-NEXT: %100 = zext i32 %step to i64
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %29
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %30
; CHECK-NEXT: br i1 %70, label %115, label %140
; CHECK-NEXT: 101:
; CHECK-NEXT: %102 = add nuw nsw i32 %x, 8
; CHECK-NEXT: %103 = icmp ult i32 %102, %size
; CHECK-NEXT: %104 = select i1 %103, i32 %102, i32 0
; CHECK-NEXT: %105 = add nuw nsw i32 %y, 1
; CHECK-NEXT: %106 = select i1 %103, i32 %y, i32 %105
; CHECK-NEXT: %107 = icmp ult i32 %106, %size.1
; CHECK-NEXT: %108 = select i1 %107, i32 %106, i32 0
; CHECK-NEXT: %109 = add nuw nsw i32 %z, 1
; CHECK-NEXT: %110 = select i1 %107, i32 %z, i32 %109
; CHECK-NEXT: %111 = add nuw nsw i32 %step, 1
; CHECK-NEXT: %112 = icmp ult i32 %111, %90
; CHECK-NEXT: br i1 %112, label %99, label %113
; CHECK-NEXT: 113:
; CHECK-NEXT: %114 = load i32, ptr %arrived
; CHECK-NEXT: switch i32 %114, label %72 [
; CHECK-NEXT: i32 1, label %91
; CHECK-NEXT: ]
; CHECK-NEXT: 115:
; CHECK-NEXT: %116 = mul i32 %y, %69
; CHECK-NEXT: %117 = add i32 %116, %x
; CHECK-NEXT: store i32 %117, ptr %31
; CHECK-NEXT: %118 = zext i32 %117 to i64
; CHECK-NEXT: store i64 %118, ptr %32
; CHECK-NEXT: %119 = getelementptr [256 x float], ptr %threadgroup, i64 0, i64 %118
; CHECK-NEXT: store ptr %119, ptr %33
; CHECK-NEXT: %120 = getelementptr float, ptr %1, i64 %118
; CHECK-NEXT: %121 = load <8 x float>, ptr %120, align 4
; CHECK-NEXT: store <8 x float> %121, ptr %119, align 4
; CHECK-NEXT: store i32 1, ptr %arrived
; CHECK-NEXT: br label %101
; CHECK-NEXT: 122:
; CHECK-NEXT: %123 = load <8 x i1>, ptr %29
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %29
; CHECK-NEXT: store <8 x i1> %123, ptr %28
; CHECK-NEXT: br label %129
; CHECK-NEXT: 124:
; CHECK-NEXT: %125 = load <8 x i1>, ptr %30
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %30
; CHECK-NEXT: %126 = bitcast <8 x i1> %125 to i8
; CHECK-NEXT: %127 = icmp ne i8 %126, 0
; CHECK-NEXT: br i1 %127, label %139, label %128
; CHECK-NEXT: 128:
; CHECK-NEXT: br label %101
; CHECK-NEXT: 129:
; CHECK-NEXT: %130 = load <8 x i1>, ptr %28
; CHECK-NEXT: %131 = mul i32 %y, %69
; CHECK-NEXT: %132 = add i32 %131, %x
; CHECK-NEXT: store i32 %132, ptr %31
; CHECK-NEXT: %133 = zext i32 %132 to i64
; CHECK-NEXT: store i64 %133, ptr %32
; CHECK-NEXT: %134 = getelementptr [256 x float], ptr %threadgroup, i64 0, i64 %133
; CHECK-NEXT: store ptr %134, ptr %33
; CHECK-NEXT: %135 = getelementptr float, ptr %1, i64 %133
; CHECK-NEXT: %136 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %135, i32 4, <8 x i1> %130, <8 x float> zeroinitializer)
; CHECK-NEXT: call void @llvm.masked.store.v8f32.p0(<8 x float> %136, ptr %134, i32 4, <8 x i1> %130)
; CHECK-NEXT: %137 = load <8 x i1>, ptr %30
; CHECK-NEXT: %138 = or <8 x i1> %137, %130
; CHECK-NEXT: store <8 x i1> %138, ptr %30
; CHECK-NEXT: br label %124
; CHECK-NEXT: 139:
; CHECK-NEXT: store i32 1, ptr %arrived
; CHECK-NEXT: br label %128
; CHECK-NEXT: 140:
; CHECK-NEXT: %141 = insertelement <8 x i32> poison, i32 %x, i64 0
; CHECK-NEXT: %142 = shufflevector <8 x i32> %141, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %143 = add <8 x i32> %142, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
; CHECK-NEXT: %144 = insertelement <8 x i32> poison, i32 %69, i64 0
; CHECK-NEXT: %145 = shufflevector <8 x i32> %144, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %146 = icmp ult <8 x i32> %143, %145
; CHECK-NEXT: %147 = and <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true>, %146
; CHECK-NEXT: %148 = insertelement <8 x i32> poison, i32 %y, i64 0
; CHECK-NEXT: %149 = shufflevector <8 x i32> %148, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %150 = insertelement <8 x i32> poison, i32 %59, i64 0
; CHECK-NEXT: %151 = shufflevector <8 x i32> %150, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %152 = icmp ult <8 x i32> %149, %151
; CHECK-NEXT: %153 = and <8 x i1> %147, %152
; CHECK-NEXT: %154 = insertelement <8 x i32> poison, i32 %z, i64 0
; CHECK-NEXT: %155 = shufflevector <8 x i32> %154, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %156 = insertelement <8 x i32> poison, i32 %63, i64 0
; CHECK-NEXT: %157 = shufflevector <8 x i32> %156, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %158 = icmp ult <8 x i32> %155, %157
; CHECK-NEXT: %159 = and <8 x i1> %153, %158
; CHECK-NEXT: %160 = bitcast <8 x i1> %159 to i8
; CHECK-NEXT: %161 = icmp eq i8 %160, -1
; CHECK-NEXT: br i1 %161, label %115, label %162
; CHECK-NEXT: 162:
; CHECK-NEXT: store <8 x i1> %159, ptr %28
; CHECK-NEXT: %163 = bitcast <8 x i1> %159 to i8
; CHECK-NEXT: %164 = icmp ne i8 %163, 0
; CHECK-NEXT: br i1 %164, label %129, label %101
; CHECK-NEXT: 165:
; CHECK-NEXT: %step.1 = phi i32 [ 0, %91 ], [ %181, %171 ]
; CHECK-NEXT: %z.1 = phi i32 [ 0, %91 ], [ %180, %171 ]
; CHECK-NEXT: %y.1 = phi i32 [ 0, %91 ], [ %178, %171 ]
; CHECK-NEXT: %x.1 = phi i32 [ 0, %91 ], [ %174, %171 ]
; CHECK-NEXT: %166 = zext i32 %step.1 to i64
; CHECK-NEXT: %167 = mul i32 %y.1, %69
; CHECK-NEXT: %168 = add i32 %167, %x.1
; CHECK-NEXT: store i32 %168, ptr %31
; CHECK-NEXT: %169 = zext i32 %168 to i64
; CHECK-NEXT: store i64 %169, ptr %32
; CHECK-NEXT: %170 = getelementptr [256 x float], ptr %threadgroup, i64 0, i64 %169
; CHECK-NEXT: store ptr %170, ptr %33
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %35
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %37
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %38
; CHECK-NEXT: br i1 %70, label %216, label %280
; CHECK-NEXT: 171:
; CHECK-NEXT: %172 = add nuw nsw i32 %x.1, 8
; CHECK-NEXT: %173 = icmp ult i32 %172, %size
; CHECK-NEXT: %174 = select i1 %173, i32 %172, i32 0
; CHECK-NEXT: %175 = add nuw nsw i32 %y.1, 1
; CHECK-NEXT: %176 = select i1 %173, i32 %y.1, i32 %175
; CHECK-NEXT: %177 = icmp ult i32 %176, %size.1
; CHECK-NEXT: %178 = select i1 %177, i32 %176, i32 0
; CHECK-NEXT: %179 = add nuw nsw i32 %z.1, 1
; CHECK-NEXT: %180 = select i1 %177, i32 %z.1, i32 %179
; CHECK-NEXT: %181 = add nuw nsw i32 %step.1, 1
; CHECK-NEXT: %182 = icmp ult i32 %181, %92
; CHECK-NEXT: %183 = load i1, ptr %last
; CHECK-NEXT: %184 = xor i1 %183, true
; CHECK-NEXT: %185 = and i1 %182, %184
; CHECK-NEXT: br i1 %185, label %165, label %186
; CHECK-NEXT: 186:
; CHECK-NEXT: %187 = load i32, ptr %arrived
; CHECK-NEXT: switch i32 %187, label %72 [
; CHECK-NEXT: i32 2, label %93
; CHECK-NEXT: ]
; CHECK-NEXT: 188:
; CHECK-NEXT: %189 = load i32, ptr %39
; CHECK-NEXT: store i32 %189, ptr %40
; CHECK-NEXT: %190 = lshr i32 %189, 1
; CHECK-NEXT: store i32 %190, ptr %41
; CHECK-NEXT: %191 = insertelement <8 x i32> poison, i32 %190, i64 0
; CHECK-NEXT: %192 = shufflevector <8 x i32> %191, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %193 = load i32, ptr %31
; CHECK-NEXT: %194 = insertelement <8 x i32> poison, i32 %193, i64 0
; CHECK-NEXT: %195 = shufflevector <8 x i32> %194, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %196 = add <8 x i32> %195, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
; CHECK-NEXT: %197 = icmp ugt <8 x i32> %192, %196
; CHECK-NEXT: store <8 x i1> %197, ptr %42
; CHECK-NEXT: %198 = add i32 %193, 7
; CHECK-NEXT: %199 = icmp ugt i32 %190, %193
; CHECK-NEXT: %200 = icmp ugt i32 %190, %198
; CHECK-NEXT: br i1 %200, label %201, label %268
; CHECK-NEXT: 201:
; CHECK-NEXT: %202 = load i32, ptr %41
; CHECK-NEXT: %203 = load i32, ptr %31
; CHECK-NEXT: %204 = add i32 %202, %203
; CHECK-NEXT: %205 = zext i32 %204 to i64
; CHECK-NEXT: %206 = getelementptr [256 x float], ptr %threadgroup, i64 0, i64 %205
; CHECK-NEXT: %207 = load <8 x float>, ptr %206, align 4
; CHECK-NEXT: %208 = load ptr, ptr %33
; CHECK-NEXT: %209 = load <8 x float>, ptr %208, align 4
; CHECK-NEXT: %210 = fadd <8 x float> %207, %209
; CHECK-NEXT: store <8 x float> %210, ptr %208, align 4
; CHECK-NEXT: br label %211
; CHECK-NEXT: 211:
; CHECK-NEXT: %212 = load i32, ptr %41
; CHECK-NEXT: %213 = getelementptr i8, ptr %scratch, i64 0
; CHECK-NEXT: store i32 %212, ptr %213
; CHECK-NEXT: %214 = load i32, ptr %40
; CHECK-NEXT: %215 = getelementptr i8, ptr %scratch, i64 64
; CHECK-NEXT: store i32 %214, ptr %215
; CHECK-NEXT: store i32 2, ptr %arrived
; CHECK-NEXT: br label %171
; CHECK-NEXT: 216:
; CHECK-NEXT: store i32 %69, ptr %39
; CHECK-NEXT: br label %188
; CHECK-NEXT: 217:
; CHECK-NEXT: %218 = load <8 x i1>, ptr %35
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %35
; CHECK-NEXT: store <8 x i1> %218, ptr %34
; CHECK-NEXT: br label %231
; CHECK-NEXT: 219:
; CHECK-NEXT: br label %233
; CHECK-NEXT: 220:
; CHECK-NEXT: %221 = load <8 x i1>, ptr %37
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %37
; CHECK-NEXT: store <8 x i1> %221, ptr %36
; CHECK-NEXT: br label %252
; CHECK-NEXT: 222:
; CHECK-NEXT: %223 = load <8 x i1>, ptr %34
; CHECK-NEXT: %224 = bitcast <8 x i1> %223 to i8
; CHECK-NEXT: %225 = icmp eq i8 %224, -1
; CHECK-NEXT: br i1 %225, label %211, label %263
; CHECK-NEXT: 226:
; CHECK-NEXT: %227 = load <8 x i1>, ptr %38
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %38
; CHECK-NEXT: %228 = bitcast <8 x i1> %227 to i8
; CHECK-NEXT: %229 = icmp ne i8 %228, 0
; CHECK-NEXT: br i1 %229, label %275, label %230
; CHECK-NEXT: 230:
; CHECK-NEXT: br label %171
; CHECK-NEXT: 231:
; CHECK-NEXT: %232 = load <8 x i1>, ptr %34
; CHECK-NEXT: br label %273
; CHECK-NEXT: 233:
; CHECK-NEXT: %234 = load <8 x i1>, ptr %34
; CHECK-NEXT: %235 = load i32, ptr %39
; CHECK-NEXT: store i32 %235, ptr %40
; CHECK-NEXT: %236 = lshr i32 %235, 1
; CHECK-NEXT: store i32 %236, ptr %41
; CHECK-NEXT: %237 = insertelement <8 x i32> poison, i32 %236, i64 0
; CHECK-NEXT: %238 = shufflevector <8 x i32> %237, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %239 = load i32, ptr %31
; CHECK-NEXT: %240 = insertelement <8 x i32> poison, i32 %239, i64 0
; CHECK-NEXT: %241 = shufflevector <8 x i32> %240, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %242 = add <8 x i32> %241, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
; CHECK-NEXT: %243 = icmp ugt <8 x i32> %238, %242
; CHECK-NEXT: store <8 x i1> %243, ptr %42
; CHECK-NEXT: br label %244
; CHECK-NEXT: 244:
; CHECK-NEXT: %245 = load <8 x i1>, ptr %34
; CHECK-NEXT: %246 = load <8 x i1>, ptr %42
; CHECK-NEXT: %247 = select <8 x i1> %245, <8 x i1> %246, <8 x i1> zeroinitializer
; CHECK-NEXT: %248 = load <8 x i1>, ptr %37
; CHECK-NEXT: %249 = or <8 x i1> %248, %247
; CHECK-NEXT: store <8 x i1> %249, ptr %37
; CHECK-NEXT: %250 = xor <8 x i1> %246, <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true>
; CHECK-NEXT: %251 = select <8 x i1> %245, <8 x i1> %250, <8 x i1> zeroinitializer
; CHECK-NEXT: br label %220
; CHECK-NEXT: 252:
; CHECK-NEXT: %253 = load <8 x i1>, ptr %36
; CHECK-NEXT: %254 = load i32, ptr %41
; CHECK-NEXT: %255 = load i32, ptr %31
; CHECK-NEXT: %256 = add i32 %254, %255
; CHECK-NEXT: %257 = zext i32 %256 to i64
; CHECK-NEXT: %258 = getelementptr [256 x float], ptr %threadgroup, i64 0, i64 %257
; CHECK-NEXT: %259 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %258, i32 4, <8 x i1> %253, <8 x float> zeroinitializer)
; CHECK-NEXT: %260 = load ptr, ptr %33
; CHECK-NEXT: %261 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %260, i32 4, <8 x i1> %253, <8 x float> zeroinitializer)
; CHECK-NEXT: %262 = fadd <8 x float> %259, %261
; CHECK-NEXT: call void @llvm.masked.store.v8f32.p0(<8 x float> %262, ptr %260, i32 4, <8 x i1> %253)
; CHECK-NEXT: br label %274
; CHECK-NEXT: 263:
; CHECK-NEXT: %264 = load <8 x i1>, ptr %34
; CHECK-NEXT: %265 = load <8 x i1>, ptr %38
; CHECK-NEXT: %266 = or <8 x i1> %265, %264
; CHECK-NEXT: store <8 x i1> %266, ptr %38
; CHECK-NEXT: br label %226
; CHECK-NEXT: 267:
; CHECK-NEXT: store <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true>, ptr %34
; CHECK-NEXT: br label %244
; CHECK-NEXT: 268:
; CHECK-NEXT: %269 = add i32 %193, 7
; CHECK-NEXT: %270 = icmp ugt i32 %190, %193
; CHECK-NEXT: %271 = icmp ugt i32 %190, %269
; CHECK-NEXT: br i1 %270, label %267, label %272
; CHECK-NEXT: 272:
; CHECK-NEXT: store i1 %18, ptr %last
; CHECK-NEXT: br label %211
; CHECK-NEXT: 273:
; CHECK-NEXT: store i32 %69, ptr %39
; CHECK-NEXT: br label %219
; CHECK-NEXT: 274:
; CHECK-NEXT: br label %222
; CHECK-NEXT: 275:
; CHECK-NEXT: %276 = load i32, ptr %41
; CHECK-NEXT: %277 = getelementptr i8, ptr %scratch, i64 0
; CHECK-NEXT: store i32 %276, ptr %277
; CHECK-NEXT: %278 = load i32, ptr %40
; CHECK-NEXT: %279 = getelementptr i8, ptr %scratch, i64 64
; CHECK-NEXT: store i32 %278, ptr %279
; CHECK-NEXT: store i32 2, ptr %arrived
; CHECK-NEXT: br label %230
; CHECK-NEXT: 280:
; CHECK-NEXT: %281 = insertelement <8 x i32> poison, i32 %x.1, i64 0
; CHECK-NEXT: %282 = shufflevector <8 x i32> %281, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %283 = add <8 x i32> %282, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
; CHECK-NEXT: %284 = insertelement <8 x i32> poison, i32 %69, i64 0
; CHECK-NEXT: %285 = shufflevector <8 x i32> %284, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %286 = icmp ult <8 x i32> %283, %285
; CHECK-NEXT: %287 = and <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true>, %286
; CHECK-NEXT: %288 = insertelement <8 x i32> poison, i32 %y.1, i64 0
; CHECK-NEXT: %289 = shufflevector <8 x i32> %288, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %290 = insertelement <8 x i32> poison, i32 %59, i64 0
; CHECK-NEXT: %291 = shufflevector <8 x i32> %290, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %292 = icmp ult <8 x i32> %289, %291
; CHECK-NEXT: %293 = and <8 x i1> %287, %292
; CHECK-NEXT: %294 = insertelement <8 x i32> poison, i32 %z.1, i64 0
; CHECK-NEXT: %295 = shufflevector <8 x i32> %294, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %296 = insertelement <8 x i32> poison, i32 %63, i64 0
; CHECK-NEXT: %297 = shufflevector <8 x i32> %296, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %298 = icmp ult <8 x i32> %295, %297
; CHECK-NEXT: %299 = and <8 x i1> %293, %298
; CHECK-NEXT: %300 = bitcast <8 x i1> %299 to i8
; CHECK-NEXT: %301 = icmp eq i8 %300, -1
; CHECK-NEXT: br i1 %301, label %216, label %302
; CHECK-NEXT: 302:
; CHECK-NEXT: store <8 x i1> %299, ptr %34
; CHECK-NEXT: %303 = bitcast <8 x i1> %299 to i8
; CHECK-NEXT: %304 = icmp ne i8 %303, 0
; CHECK-NEXT: br i1 %304, label %231, label %171
; CHECK-NEXT: 305:
; CHECK-NEXT: %step.2 = phi i32 [ 0, %93 ], [ %321, %311 ]
; CHECK-NEXT: %z.2 = phi i32 [ 0, %93 ], [ %320, %311 ]
; CHECK-NEXT: %y.2 = phi i32 [ 0, %93 ], [ %318, %311 ]
; CHECK-NEXT: %x.2 = phi i32 [ 0, %93 ], [ %314, %311 ]
; CHECK-NEXT: %306 = zext i32 %step.2 to i64
; CHECK-NEXT: store i32 %95, ptr %41
; CHECK-NEXT: store i32 %97, ptr %40
; CHECK-NEXT: %307 = mul i32 %y.2, %69
; CHECK-NEXT: %308 = add i32 %307, %x.2
; CHECK-NEXT: store i32 %308, ptr %31
; CHECK-NEXT: %309 = zext i32 %308 to i64
; CHECK-NEXT: store i64 %309, ptr %32
; CHECK-NEXT: %310 = getelementptr [256 x float], ptr %threadgroup, i64 0, i64 %309
; CHECK-NEXT: store ptr %310, ptr %33
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %44
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %46
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %47
; CHECK-NEXT: br i1 %70, label %361, label %440
; CHECK-NEXT: 311:
; CHECK-NEXT: %312 = add nuw nsw i32 %x.2, 8
; CHECK-NEXT: %313 = icmp ult i32 %312, %size
; CHECK-NEXT: %314 = select i1 %313, i32 %312, i32 0
; CHECK-NEXT: %315 = add nuw nsw i32 %y.2, 1
; CHECK-NEXT: %316 = select i1 %313, i32 %y.2, i32 %315
; CHECK-NEXT: %317 = icmp ult i32 %316, %size.1
; CHECK-NEXT: %318 = select i1 %317, i32 %316, i32 0
; CHECK-NEXT: %319 = add nuw nsw i32 %z.2, 1
; CHECK-NEXT: %320 = select i1 %317, i32 %z.2, i32 %319
; CHECK-NEXT: %321 = add nuw nsw i32 %step.2, 1
; CHECK-NEXT: %322 = icmp ult i32 %321, %98
; CHECK-NEXT: %323 = load i1, ptr %last.1
; CHECK-NEXT: %324 = xor i1 %323, true
; CHECK-NEXT: %325 = and i1 %322, %324
; CHECK-NEXT: br i1 %325, label %305, label %326
; CHECK-NEXT: 326:
; CHECK-NEXT: %327 = load i32, ptr %arrived
; CHECK-NEXT: switch i32 %327, label %72 [
; CHECK-NEXT: i32 2, label %93
; CHECK-NEXT: ]
; CHECK-NEXT: 328:
; CHECK-NEXT: %329 = load i32, ptr %39
; CHECK-NEXT: store i32 %329, ptr %40
; CHECK-NEXT: %330 = lshr i32 %329, 1
; CHECK-NEXT: store i32 %330, ptr %41
; CHECK-NEXT: %331 = insertelement <8 x i32> poison, i32 %330, i64 0
; CHECK-NEXT: %332 = shufflevector <8 x i32> %331, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %333 = load i32, ptr %31
; CHECK-NEXT: %334 = insertelement <8 x i32> poison, i32 %333, i64 0
; CHECK-NEXT: %335 = shufflevector <8 x i32> %334, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %336 = add <8 x i32> %335, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
; CHECK-NEXT: %337 = icmp ugt <8 x i32> %332, %336
; CHECK-NEXT: store <8 x i1> %337, ptr %42
; CHECK-NEXT: %338 = add i32 %333, 7
; CHECK-NEXT: %339 = icmp ugt i32 %330, %333
; CHECK-NEXT: %340 = icmp ugt i32 %330, %338
; CHECK-NEXT: br i1 %340, label %341, label %426
; CHECK-NEXT: 341:
; CHECK-NEXT: %342 = load i32, ptr %41
; CHECK-NEXT: %343 = load i32, ptr %31
; CHECK-NEXT: %344 = add i32 %342, %343
; CHECK-NEXT: %345 = zext i32 %344 to i64
; CHECK-NEXT: %346 = getelementptr [256 x float], ptr %threadgroup, i64 0, i64 %345
; CHECK-NEXT: %347 = load <8 x float>, ptr %346, align 4
; CHECK-NEXT: %348 = load ptr, ptr %33
; CHECK-NEXT: %349 = load <8 x float>, ptr %348, align 4
; CHECK-NEXT: %350 = fadd <8 x float> %347, %349
; CHECK-NEXT: store <8 x float> %350, ptr %348, align 4
; CHECK-NEXT: br label %351
; CHECK-NEXT: 351:
; CHECK-NEXT: %352 = load i32, ptr %41
; CHECK-NEXT: %353 = getelementptr i8, ptr %scratch, i64 0
; CHECK-NEXT: store i32 %352, ptr %353
; CHECK-NEXT: %354 = load i32, ptr %40
; CHECK-NEXT: %355 = getelementptr i8, ptr %scratch, i64 64
; CHECK-NEXT: store i32 %354, ptr %355
; CHECK-NEXT: store i32 2, ptr %arrived
; CHECK-NEXT: br label %311
; CHECK-NEXT: 356:
; CHECK-NEXT: %357 = load i64, ptr %32
; CHECK-NEXT: %358 = getelementptr float, ptr %3, i64 %357
; CHECK-NEXT: %359 = load ptr, ptr %33
; CHECK-NEXT: %360 = load <8 x float>, ptr %359, align 4
; CHECK-NEXT: store <8 x float> %360, ptr %358, align 4
; CHECK-NEXT: br label %311
; CHECK-NEXT: 361:
; CHECK-NEXT: %362 = load i32, ptr %40
; CHECK-NEXT: %363 = icmp ugt i32 %362, 3
; CHECK-NEXT: br i1 %363, label %423, label %356
; CHECK-NEXT: 364:
; CHECK-NEXT: %365 = load <8 x i1>, ptr %44
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %44
; CHECK-NEXT: store <8 x i1> %365, ptr %43
; CHECK-NEXT: br label %379
; CHECK-NEXT: 366:
; CHECK-NEXT: br label %383
; CHECK-NEXT: 367:
; CHECK-NEXT: %368 = load <8 x i1>, ptr %46
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %46
; CHECK-NEXT: store <8 x i1> %368, ptr %45
; CHECK-NEXT: br label %402
; CHECK-NEXT: 369:
; CHECK-NEXT: %370 = load <8 x i1>, ptr %43
; CHECK-NEXT: %371 = bitcast <8 x i1> %370 to i8
; CHECK-NEXT: %372 = icmp eq i8 %371, -1
; CHECK-NEXT: br i1 %372, label %351, label %413
; CHECK-NEXT: 373:
; CHECK-NEXT: br label %417
; CHECK-NEXT: 374:
; CHECK-NEXT: %375 = load <8 x i1>, ptr %47
; CHECK-NEXT: store <8 x i1> zeroinitializer, ptr %47
; CHECK-NEXT: %376 = bitcast <8 x i1> %375 to i8
; CHECK-NEXT: %377 = icmp ne i8 %376, 0
; CHECK-NEXT: br i1 %377, label %435, label %378
; CHECK-NEXT: 378:
; CHECK-NEXT: br label %311
; CHECK-NEXT: 379:
; CHECK-NEXT: %380 = load <8 x i1>, ptr %43
; CHECK-NEXT: %381 = load i32, ptr %40
; CHECK-NEXT: %382 = icmp ugt i32 %381, 3
; CHECK-NEXT: br i1 %382, label %431, label %433
; CHECK-NEXT: 383:
; CHECK-NEXT: %384 = load <8 x i1>, ptr %43
; CHECK-NEXT: %385 = load i32, ptr %39
; CHECK-NEXT: store i32 %385, ptr %40
; CHECK-NEXT: %386 = lshr i32 %385, 1
; CHECK-NEXT: store i32 %386, ptr %41
; CHECK-NEXT: %387 = insertelement <8 x i32> poison, i32 %386, i64 0
; CHECK-NEXT: %388 = shufflevector <8 x i32> %387, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %389 = load i32, ptr %31
; CHECK-NEXT: %390 = insertelement <8 x i32> poison, i32 %389, i64 0
; CHECK-NEXT: %391 = shufflevector <8 x i32> %390, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %392 = add <8 x i32> %391, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
; CHECK-NEXT: %393 = icmp ugt <8 x i32> %388, %392
; CHECK-NEXT: store <8 x i1> %393, ptr %42
; CHECK-NEXT: br label %394
; CHECK-NEXT: 394:
; CHECK-NEXT: %395 = load <8 x i1>, ptr %43
; CHECK-NEXT: %396 = load <8 x i1>, ptr %42
; CHECK-NEXT: %397 = select <8 x i1> %395, <8 x i1> %396, <8 x i1> zeroinitializer
; CHECK-NEXT: %398 = load <8 x i1>, ptr %46
; CHECK-NEXT: %399 = or <8 x i1> %398, %397
; CHECK-NEXT: store <8 x i1> %399, ptr %46
; CHECK-NEXT: %400 = xor <8 x i1> %396, <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true>
; CHECK-NEXT: %401 = select <8 x i1> %395, <8 x i1> %400, <8 x i1> zeroinitializer
; CHECK-NEXT: br label %367
; CHECK-NEXT: 402:
; CHECK-NEXT: %403 = load <8 x i1>, ptr %45
; CHECK-NEXT: %404 = load i32, ptr %41
; CHECK-NEXT: %405 = load i32, ptr %31
; CHECK-NEXT: %406 = add i32 %404, %405
; CHECK-NEXT: %407 = zext i32 %406 to i64
; CHECK-NEXT: %408 = getelementptr [256 x float], ptr %threadgroup, i64 0, i64 %407
; CHECK-NEXT: %409 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %408, i32 4, <8 x i1> %403, <8 x float> zeroinitializer)
; CHECK-NEXT: %410 = load ptr, ptr %33
; CHECK-NEXT: %411 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %410, i32 4, <8 x i1> %403, <8 x float> zeroinitializer)
; CHECK-NEXT: %412 = fadd <8 x float> %409, %411
; CHECK-NEXT: call void @llvm.masked.store.v8f32.p0(<8 x float> %412, ptr %410, i32 4, <8 x i1> %403)
; CHECK-NEXT: br label %434
; CHECK-NEXT: 413:
; CHECK-NEXT: %414 = load <8 x i1>, ptr %43
; CHECK-NEXT: %415 = load <8 x i1>, ptr %47
; CHECK-NEXT: %416 = or <8 x i1> %415, %414
; CHECK-NEXT: store <8 x i1> %416, ptr %47
; CHECK-NEXT: br label %374
; CHECK-NEXT: 417:
; CHECK-NEXT: %418 = load <8 x i1>, ptr %43
; CHECK-NEXT: %419 = load i64, ptr %32
; CHECK-NEXT: %420 = getelementptr float, ptr %3, i64 %419
; CHECK-NEXT: %421 = load ptr, ptr %33
; CHECK-NEXT: %422 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %421, i32 4, <8 x i1> %418, <8 x float> zeroinitializer)
; CHECK-NEXT: call void @llvm.masked.store.v8f32.p0(<8 x float> %422, ptr %420, i32 4, <8 x i1> %418)
; CHECK-NEXT: br label %378
; CHECK-NEXT: 423:
; CHECK-NEXT: %424 = load i32, ptr %41
; CHECK-NEXT: store i32 %424, ptr %39
; CHECK-NEXT: br label %328
; CHECK-NEXT: 425:
; CHECK-NEXT: store <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true>, ptr %43
; CHECK-NEXT: br label %394
; CHECK-NEXT: 426:
; CHECK-NEXT: %427 = add i32 %333, 7
; CHECK-NEXT: %428 = icmp ugt i32 %330, %333
; CHECK-NEXT: %429 = icmp ugt i32 %330, %427
; CHECK-NEXT: br i1 %428, label %425, label %430
; CHECK-NEXT: 430:
; CHECK-NEXT: store i1 %18, ptr %last.1
; CHECK-NEXT: br label %351
; CHECK-NEXT: 431:
; CHECK-NEXT: %432 = load i32, ptr %41
; CHECK-NEXT: store i32 %432, ptr %39
; CHECK-NEXT: br label %366
; CHECK-NEXT: 433:
; CHECK-NEXT: br label %373
; CHECK-NEXT: 434:
; CHECK-NEXT: br label %369
; CHECK-NEXT: 435:
; CHECK-NEXT: %436 = load i32, ptr %41
; CHECK-NEXT: %437 = getelementptr i8, ptr %scratch, i64 0
; CHECK-NEXT: store i32 %436, ptr %437
; CHECK-NEXT: %438 = load i32, ptr %40
; CHECK-NEXT: %439 = getelementptr i8, ptr %scratch, i64 64
; CHECK-NEXT: store i32 %438, ptr %439
; CHECK-NEXT: store i32 2, ptr %arrived
; CHECK-NEXT: br label %378
; CHECK-NEXT: 440:
; CHECK-NEXT: %441 = insertelement <8 x i32> poison, i32 %x.2, i64 0
; CHECK-NEXT: %442 = shufflevector <8 x i32> %441, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %443 = add <8 x i32> %442, <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
; CHECK-NEXT: %444 = insertelement <8 x i32> poison, i32 %69, i64 0
; CHECK-NEXT: %445 = shufflevector <8 x i32> %444, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %446 = icmp ult <8 x i32> %443, %445
; CHECK-NEXT: %447 = and <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true>, %446
; CHECK-NEXT: %448 = insertelement <8 x i32> poison, i32 %y.2, i64 0
; CHECK-NEXT: %449 = shufflevector <8 x i32> %448, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %450 = insertelement <8 x i32> poison, i32 %59, i64 0
; CHECK-NEXT: %451 = shufflevector <8 x i32> %450, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %452 = icmp ult <8 x i32> %449, %451
; CHECK-NEXT: %453 = and <8 x i1> %447, %452
; CHECK-NEXT: %454 = insertelement <8 x i32> poison, i32 %z.2, i64 0
; CHECK-NEXT: %455 = shufflevector <8 x i32> %454, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %456 = insertelement <8 x i32> poison, i32 %63, i64 0
; CHECK-NEXT: %457 = shufflevector <8 x i32> %456, <8 x i32> poison, <8 x i32> zeroinitializer
; CHECK-NEXT: %458 = icmp ult <8 x i32> %455, %457
; CHECK-NEXT: %459 = and <8 x i1> %453, %458
; CHECK-NEXT: %460 = bitcast <8 x i1> %459 to i8
; CHECK-NEXT: %461 = icmp eq i8 %460, -1
; CHECK-NEXT: br i1 %461, label %361, label %462
; CHECK-NEXT: 462:
; CHECK-NEXT: store <8 x i1> %459, ptr %43
; CHECK-NEXT: %463 = bitcast <8 x i1> %459 to i8
; CHECK-NEXT: %464 = icmp ne i8 %463, 0
; CHECK-NEXT: br i1 %464, label %379, label %311
