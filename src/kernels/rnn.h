/* Recurrent layers: what rnn.c and rnn_f64.c share. */
#ifndef WF_KERNELS_RNN_H
#define WF_KERNELS_RNN_H

#include "kernels/private.h"

/* Operands by name; the position in the table is the operand's number. */
enum { XPROJ, W_HH, B_HH, H0, C0, Y, HT, CT, SAVED, FWD_N };
enum { BW_HH, BH0, BC0, BY, BSAVED, DY, DHT, DCT, DXPROJ, DHPROJ, DH0, DC0, BWD_N };

typedef struct {
    const WfVec *vec;
    int mode;
    bool backward, reverse, amx, f64;
    int64_t t, b, h, g, s, hp, tiles; /* g, s: gates and saved blocks; hp: h padded to 16 */
    int64_t stride[WF_LIB_OPERANDS][3];
    bool has[WF_LIB_OPERANDS];
} WfRnn;

/* Both directions in float64; no workspace, scratch bytes for one sample. */
size_t wf_rnn_f64_scratch(const WfRnn *r);
void wf_rnn_f64_create(const WfRnn *r, WfLib *lib);

#endif
