# cmake -DSOURCE=FOLDER -DOUTPUT=FILE -P write_build.cmake    writes the source of build.h's texts.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short HEAD OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(READ ${SOURCE}/page.html page)
file(WRITE ${OUTPUT} "#include \"client/report/build.h\"

namespace lowkey {

const char kBuildCommit[] = \"${commit}\";
const char kPageTemplate[] = R\"__(${page})__\";

}  // namespace lowkey
")
