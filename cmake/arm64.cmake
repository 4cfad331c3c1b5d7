# Toolchain for 64-bit Arm on another machine: Debian's cross compiler, an unpacked arm64 system with
# the libraries (LOWKEY_SYSROOT), and qemu-user to run what is built. tests/run.sh arm64 makes all three.
set(LOWKEY_SYSROOT "$ENV{LOWKEY_SYSROOT}" CACHE PATH "An unpacked arm64 Debian")
set(ENV{LOWKEY_SYSROOT} "${LOWKEY_SYSROOT}")  # try_compile reads this file again

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_SYSROOT ${LOWKEY_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${LOWKEY_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
    ${LOWKEY_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${LOWKEY_SYSROOT}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${LOWKEY_SYSROOT})
