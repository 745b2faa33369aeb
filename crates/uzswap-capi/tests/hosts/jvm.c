/* A virtual machine in the same process: jvm LIBJVM CLASSPATH first|last signal|segv. Which of the
 * two installs its signal handlers first is told; both get their own faults. */
#include <dlfcn.h>
#include <jni.h>
#include <stdio.h>
#include <string.h>
#include <uzswap.h>

#define CHECK(holds)                                                                               \
  if (!(holds)) {                                                                                  \
    fprintf(stderr, "line %d: %s: %s\n", __LINE__, #holds, uzswap_error_text());                   \
    return 1;                                                                                      \
  }

static uzswap_pool *pool;
static signed char *bytes;
enum { LEN = 48 << 20 };

static int use_pool(const char *mode) {
  uzswap_params params = UZSWAP_PARAMS_INIT;
  params.limit = 16 << 20;
  params.fault_mode = strcmp(mode, "segv") == 0 ? UZSWAP_FAULT_SEGV : UZSWAP_FAULT_SIGNAL;
  CHECK(uzswap_pool_create(&params, &pool) == UZSWAP_OK);
  CHECK((bytes = uzswap_malloc(pool, LEN)) != NULL);
  for (int n = 0; n < LEN; n++)
    bytes[n] = (signed char)(n / 4096 % 100);
  return 0;
}

static JNIEnv *start_jvm(const char *library, const char *classes) {
  JavaVM *vm;
  JNIEnv *env;
  char path[4096];
  snprintf(path, sizeof path, "-Djava.class.path=%s", classes);
  JavaVMOption options[] = {{path, NULL}, {"-Xmx64m", NULL}, {"-Xcheck:jni", NULL}};
  JavaVMInitArgs args = {JNI_VERSION_1_8, 2, options, JNI_FALSE};
  jint (*create)(JavaVM **, void **, void *) = NULL;
  void *jvm = dlopen(library, RTLD_NOW);
  if (jvm != NULL)
    *(void **)&create = dlsym(jvm, "JNI_CreateJavaVM");
  return create != NULL && create(&vm, (void **)&env, &args) == JNI_OK ? env : NULL;
}

int main(int argc, char **argv) {
  CHECK(argc == 5);
  int jvm_first = strcmp(argv[3], "first") == 0;
  if (!jvm_first && use_pool(argv[4]))
    return 1;
  JNIEnv *env = start_jvm(argv[1], argv[2]);
  CHECK(env != NULL);
  if (jvm_first && use_pool(argv[4]))
    return 1;
  if (!jvm_first) {
    /* The machine has taken the signals over, and says nothing. */
    CHECK(uzswap_check_handlers() == UZSWAP_REPLACED);
    CHECK(uzswap_reinstall_handlers() == UZSWAP_OK);
  }
  jclass host = (*env)->FindClass(env, "Host");
  CHECK(host != NULL);
  jmethodID nulls = (*env)->GetStaticMethodID(env, host, "nulls", "(I)I");
  jmethodID sum = (*env)->GetStaticMethodID(env, host, "sum", "(Ljava/nio/ByteBuffer;)J");
  long long right = 0;
  for (int n = 0; n < LEN; n++)
    right += n / 4096 % 100;
  for (int round = 0; round < 3; round++) {
    CHECK((*env)->CallStaticIntMethod(env, host, nulls, 200000) == 100000);
    for (int n = 0; n < LEN; n += 4096)
      CHECK(bytes[n] == n / 4096 % 100);
    jobject buffer = (*env)->NewDirectByteBuffer(env, bytes, LEN);
    CHECK((*env)->CallStaticLongMethod(env, host, sum, buffer) == right);
  }
  return 0;
}
